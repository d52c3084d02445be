"""Kernels from integers to floats, for every layout and storage. Formulas: spec/numerics.md A.5, C.9, H.2; mlir.md 4.4.

E(f32(f32(q - z) * s))          q - z in int32, which wraps for 32-bit storage
E(f32(f64(q - z) * f64(s)))     q - z exact; for 32-bit storage, where the two differ
S(S(S(q) - S(z)) * s)           S is E
S(S(q - z) * s)                 S is E: f16 or bf16; storage of up to 16 bits, as above it

E is f32, f16 or bf16. Types are numbers that the loop looks at for each vector, which costs nothing that shows.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import types

from core.kernels.jit.jit import Array, Kernel, Number, device, kernel, readable, writable
from core.kernels.jit.processor import prefer_wide_vectors
from core.kernels.loop.layout import after_rows, locate, next_vector, rows_from, unpacked
from core.kernels.scalar.rounding import Precision
from core.kernels.simd.memory import elements_of, load, load_all_as, load_as, load_first, load_one
from core.kernels.simd.narrow import store_f32, store_first_f32
from core.kernels.simd.rounding import round_to_precision
from core.kernels.simd.vector import LANES
from core.kernels.simd.vectors import (
    convert,
    first,
    select,
    splat,
)
from core.kernels.simd.widen import FloatKind


class Storage(IntEnum):
    """What the bytes of the source are."""

    I8 = 0
    U8 = 1
    I16 = 2
    U16 = 3
    I32 = 4


_F32, _NATIVE = int(FloatKind.F32), int(Precision.NATIVE)
_NAN = np.float32(np.nan)
_I8, _U8, _I16, _U16 = int(Storage.I8), int(Storage.U8), int(Storage.I16), int(Storage.U16)


@device
def _integers(source: Array, index: Number, kind: int) -> Number:
    """The stored numbers from `index` on, as int32."""
    if kind == _I8:
        return convert(load_all_as(source, index, np.int8), np.int32)
    if kind == _U8:
        return convert(load_all_as(source, index, np.uint8), np.int32)
    if kind == _I16:
        return convert(load_all_as(source, index, np.int16), np.int32)
    if kind == _U16:
        return convert(load_all_as(source, index, np.uint16), np.int32)
    return load_all_as(source, index, np.int32)


@device
def _first_integers(source: Array, index: Number, mask: Number, kind: int) -> Number:
    """The same for the elements in the mask, and zeros."""
    if kind == _I8:
        return convert(load_as(source, index, mask, np.int8), np.int32)
    if kind == _U8:
        return convert(load_as(source, index, mask, np.uint8), np.int32)
    if kind == _I16:
        return convert(load_as(source, index, mask, np.int16), np.int32)
    if kind == _U16:
        return convert(load_as(source, index, mask, np.uint16), np.int32)
    return load_as(source, index, mask, np.int32)


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
) -> None:
    """The rows of `core.kernels.loop.layout.rows_from`, of which the first is at `begin` and has that parameter."""
    if rows > 1:
        left = length
        for i in range(begin, begin + rows * length, LANES):
            zero, scale = load_one(zero_points, parameter), load_one(scales, parameter)
            store_f32(target, i, _value(_integers(source, i, storage), zero, scale, double, steps), kind)
            parameter, left = next_vector(parameter, left, length)
        return
    scale = load_one(scales, parameter)
    zero = load_one(zero_points, parameter)
    end = begin + length
    whole = end - length % LANES
    for i in range(begin, whole, LANES):
        if cycle:
            scale = load(scales, parameter + (i - begin))
            zero = load(zero_points, parameter + (i - begin))
        store_f32(target, i, _value(_integers(source, i, storage), zero, scale, double, steps), kind)
    if whole < end:
        valid = first(end - whole)
        if cycle:
            scale = load_first(scales, parameter + (whole - begin), valid)
            zero = load_first(zero_points, parameter + (whole - begin), valid)
        value = _value(_first_integers(source, whole, valid, storage), zero, scale, double, steps)
        store_first_f32(target, whole, value, valid, kind)


def _dequantize(double: bool) -> Kernel:
    @kernel(
        (
            readable(types.uint8),  # source, as bytes
            writable(types.uint8),  # target, as bytes
            types.int64,  # start: index of source[0] in the whole tensor
            types.int64,  # how many elements there are
            readable(types.int64),  # core.kernels.loop.layout.unpacked
            readable(types.float32),  # scales, one for each parameter
            readable(types.int32),  # zero points, likewise
            types.int64,  # Storage of the source
            types.int64,  # FloatKind of the target, not F64
            types.int64,  # Precision of the steps; but NATIVE for f64 products
            types.boolean,  # whether q and z become floats before they are subtracted
        )
    )
    def dequantize(
        source_bytes: Array,
        target_bytes: Array,
        start: Number,
        size: Number,
        numbers: Array,
        all_scales: Array,
        all_zero_points: Array,
        storage: Number,
        kind: Number,
        precision: Number,
        of_floats: Number,
    ) -> None:
        prefer_wide_vectors()
        source, target = elements_of(source_bytes), elements_of(target_bytes)
        scales, zero_points = elements_of(all_scales), elements_of(all_zero_points)
        steps = (precision, of_floats)
        layout = unpacked(numbers)
        cycle = layout[4] != 0
        place = locate(start, layout)
        done = 0
        while done < size:
            rows, length = rows_from(size - done, place, layout)
            parameter = place[0] + place[1]
            place = after_rows(rows, length, place, layout)
            # Constants where it pays: a branch for each vector costs as much as the arithmetic.
            if kind != _F32 or storage > _U8 or of_floats or (cycle and storage != _I8):
                _rows(
                    source, target, done, rows, length, scales, zero_points, parameter, storage, kind, cycle, double,
                    steps,
                )  # fmt: skip
            elif cycle:
                _rows(
                    source, target, done, rows, length, scales, zero_points, parameter, _I8, _F32, True, double,
                    (_NATIVE, False),
                )  # fmt: skip
            elif storage == _I8:
                _rows(
                    source, target, done, rows, length, scales, zero_points, parameter, _I8, _F32, False, double,
                    (_NATIVE, False),
                )  # fmt: skip
            else:
                _rows(
                    source, target, done, rows, length, scales, zero_points, parameter, _U8, _F32, False, double,
                    (_NATIVE, False),
                )  # fmt: skip
            done += rows * length

    return dequantize


DEQUANTIZE: dict[bool, Kernel] = {double: _dequantize(double) for double in (False, True)}
"""The kernel; the key says whether the product is taken in f64."""
