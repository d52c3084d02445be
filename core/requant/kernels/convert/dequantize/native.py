"""Kernels from integers to floats, for every layout and storage.

E(f32(f32(q - z) * s))          q - z in int32, which wraps for 32-bit storage
E(f32(f64(q - z) * f64(s)))     q - z exact; for 32-bit storage, where the two differ
S(S(S(q) - S(z)) * s)           S is E
S(S(q - z) * s)                 S is E: f16 or bf16; storage of up to 16 bits, as above it

E is f32, f16 or bf16. Types are numbers that the loop looks at for each vector, which costs nothing that shows.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

import numpy as np
from numba import types

from requant.kernels.jit.jit import Array, Kernel, Number, device, inlined, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import F32, I16, I32, I64, U8, In, Out
from requant.kernels.loops import ZERO, locate, next_vector, row_loop, unpacked
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.integer_lanes import Storage, load_int32
from requant.kernels.simd.memory import elements_of, load, load_one
from requant.kernels.simd.narrow import store_f32
from requant.kernels.simd.rounding import round_to_precision
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import convert, first, select, splat
from requant.kernels.simd.widen import FloatKind

_I8, _U8, _I16, _U16, _I32 = (int(each) for each in (Storage.I8, Storage.U8, Storage.I16, Storage.U16, Storage.I32))
_F32, _NATIVE = int(FloatKind.F32), int(Precision.NATIVE)
_NAN = np.float32(np.nan)
_LONG = 1024


class Choice(IntEnum):
    """Where each choice stands in the kernels' `numbers`, after those of `requant.kernels.loops.unpacked`."""

    SOURCE = 5
    """Storage of the source."""
    TARGET = 6
    """FloatKind of the target, not F64."""
    PRECISION = 7
    """Of the steps; but NATIVE for f64 products."""
    OF_FLOATS = 8
    """Whether q and z become floats before they are subtracted."""


_SOURCE, _TARGET, _PRECISION, _OF_FLOATS = map(int, Choice)


@device
def _in_steps(integers: Number, zero: Number, scale: Number, steps: tuple[int, bool]) -> Number:
    precision, of_floats = steps
    if of_floats:
        left = round_to_precision(convert(integers, np.float32), precision)
        difference = left - round_to_precision(convert(zero, np.float32), precision)
    else:
        difference = convert(integers - zero, np.float32)
    value = round_to_precision(round_to_precision(difference, precision) * scale, precision)
    # Infinity minus infinity: hardware gives it a sign, constant folders do not.
    return select(value == value, value, splat(_NAN))


@device
def _value(integers: Number, zero: Number, scale: Number, double: bool, steps: tuple[int, bool]) -> Number:
    """`steps`: the Precision of each step, and whether q and z become floats before they are subtracted."""
    if double:
        difference = convert(integers, np.float64) - convert(zero, np.float64)
        return convert(difference * convert(scale, np.float64), np.float32)
    if steps[0] != _NATIVE:
        return _in_steps(integers, zero, scale, steps)
    if steps[1]:
        return (convert(integers, np.float32) - convert(zero, np.float32)) * scale
    return convert(integers - zero, np.float32) * scale


@device
def _rows(
    source: Array,
    target: Array,
    begin: Number,
    rows: Number,
    length: Number,
    scales: Array,
    zero_points: Array,
    parameter: Number,
    storage: int,
    kind: int,
    cycle: bool,
    double: bool,
    steps: tuple[int, bool],
    first_aligned: Number,
) -> None:
    if rows > 1:
        left = length
        for i in range(begin, begin + rows * length, LANES):
            zero, scale = load_one(zero_points, parameter), load_one(scales, parameter)
            store_f32(target, i, _value(load_int32(source, i, storage), zero, scale, double, steps), kind)
            parameter, left = next_vector(parameter, left, length)
        return
    scale = load_one(scales, parameter)
    zero = load_one(zero_points, parameter)
    end = begin + length
    aligned = begin
    if not cycle and length >= _LONG:
        # A vector across the end of a cache line costs twice as much. So the second vector begins with a line, and the
        # first one reaches into it.
        aligned += (first_aligned - begin) % LANES
        store_f32(target, begin, _value(load_int32(source, begin, storage), zero, scale, double, steps), kind)
    whole = end - (end - aligned) % LANES
    for i in range(aligned, whole, LANES):
        if cycle:
            scale = load(scales, parameter + (i - begin))
            zero = load(zero_points, parameter + (i - begin))
        store_f32(target, i, _value(load_int32(source, i, storage), zero, scale, double, steps), kind)
    if whole < end:
        valid = first(end - whole)
        if cycle:
            scale = load(scales, parameter + (whole - begin), valid)
            zero = load(zero_points, parameter + (whole - begin), valid)
        value = _value(load_int32(source, whole, storage, valid), zero, scale, double, steps)
        store_f32(target, whole, value, kind, valid)


Target = TypeVar("Target", F32, I16)


def _loop(double: bool) -> Callable[..., Number]:
    @inlined
    def convert_rows(
        work: tuple[Number, ...],
        begin: Number,
        rows: Number,
        length: Number,
        parameter: Number,
        cycle: Number,
        check: Number,
        seen: Number,
    ) -> Number:
        source, target, scales, zero_points, storage, kind, steps, first_aligned = work
        # Constants where it pays: a branch for each vector costs as much as the arithmetic.
        if kind != _F32 or storage == _U16 or steps[1] or (cycle and storage != _I8):
            _rows(
                source, target, begin, rows, length, scales, zero_points, parameter, storage, kind, cycle, double,
                steps, first_aligned,
            )  # fmt: skip
        elif cycle:
            _rows(
                source, target, begin, rows, length, scales, zero_points, parameter, _I8, _F32, True, double,
                (_NATIVE, False), first_aligned,
            )  # fmt: skip
        elif storage == _I8:
            _rows(
                source, target, begin, rows, length, scales, zero_points, parameter, _I8, _F32, False, double,
                (_NATIVE, False), first_aligned,
            )  # fmt: skip
        elif storage == _U8:
            _rows(
                source, target, begin, rows, length, scales, zero_points, parameter, _U8, _F32, False, double,
                (_NATIVE, False), first_aligned,
            )  # fmt: skip
        elif storage == _I16:
            _rows(
                source, target, begin, rows, length, scales, zero_points, parameter, _I16, _F32, False, double,
                (_NATIVE, False), first_aligned,
            )  # fmt: skip
        else:
            _rows(
                source, target, begin, rows, length, scales, zero_points, parameter, _I32, _F32, False, double,
                (_NATIVE, False), first_aligned,
            )  # fmt: skip
        return seen

    return row_loop(convert_rows)


def _dequantize(double: bool, size: int) -> Kernel:
    convert_between = _loop(double)
    in_f32 = size == 4
    target_type = types.float32 if in_f32 else types.int16

    @kernel({Target: target_type})
    def dequantize(
        source: In[U8],  # as bytes
        target: Out[Target],  # f16 and bf16 as their bits
        start: I64,  # index of source[0] in the whole tensor
        numbers: In[I64],  # by Choice
        scales: In[F32],  # one for each parameter
        zero_points: In[I32],  # likewise
    ) -> None:
        prefer_wide_vectors()
        work = (
            elements_of(source), elements_of(target), elements_of(scales), elements_of(zero_points),
            numbers[_SOURCE], np.int64(_F32) if in_f32 else numbers[_TARGET],
            (numbers[_PRECISION], numbers[_OF_FLOATS] != 0), -(target.ctypes.data // size) % LANES,
        )  # fmt: skip
        layout = unpacked(numbers)
        convert_between(work, ZERO, target.size, locate(start, layout), layout, ZERO, ZERO)

    return dequantize


DEQUANTIZE: dict[tuple[bool, int], Kernel] = {
    (double, size): _dequantize(double, size) for double, size in ((False, 2), (False, 4), (True, 4))
}
"""The kernels, by whether the product is taken in f64, as of f32 only, and by the bytes of an element of the target."""
