"""Integers of any width between memory and vectors, of int64 or int32, one or four at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from core.kernels.jit.jit import Array, Number, device, intrinsic
from core.kernels.simd.memory import load_as, place_of, prefetch, store_as
from core.kernels.simd.vector import LANES, Generated, Vector, llvm_vector
from core.kernels.simd.vectors import convert

BLOCK = 4 * LANES
"""Elements in four vectors."""

# Bytes from what is loaded to what is asked for ahead of its use, and bytes that come together.
_AHEAD = 4096
_LINE = 64


@device
def load_int32(source: Array, index: Number, size: int, signed: bool, mask: Number = None) -> Number:
    """Sixteen integers of `size` bytes, up to four, as int32. Those of four bytes are signed."""
    if size == 1:
        if signed:
            return convert(load_as(source, index, np.int8, mask), np.int32)
        return convert(load_as(source, index, np.uint8, mask), np.int32)
    if size == 2:
        if signed:
            return convert(load_as(source, index, np.int16, mask), np.int32)
        return convert(load_as(source, index, np.uint16, mask), np.int32)
    return load_as(source, index, np.int32, mask)


@device
def load_int64(source: Array, index: Number, size: int, signed: bool, mask: Number = None) -> Number:
    """The same of up to eight bytes, as int64. Those of eight bytes are signed."""
    if size == 8:
        return load_as(source, index, np.int64, mask)
    if size == 4 and not signed:
        return convert(load_as(source, index, np.uint32, mask), np.int64)
    return convert(load_int32(source, index, size, signed, mask), np.int64)


@device
def store_integers(target: Array, index: Number, stored: Number, size: int, mask: Number = None) -> None:
    """The lowest `size` bytes, up to four, of each integer to an array of bytes."""
    if size == 1:
        store_as(target, index, stored, np.int8, mask)
    elif size == 2:
        store_as(target, index, stored, np.int16, mask)
    else:
        store_as(target, index, stored, np.int32, mask)


@device
def load_block(source: Array, index: Number, size: int, signed: bool) -> tuple[Number, Number, Number, Number]:
    """load_int32 of four vectors, with one choice of the type for all. What comes later is asked for."""
    b, c, d = index + LANES, index + 2 * LANES, index + 3 * LANES
    later = index * size + _AHEAD
    if size == 4:
        prefetch(source, later)
        prefetch(source, later + _LINE)
        prefetch(source, later + 2 * _LINE)
        prefetch(source, later + 3 * _LINE)
        return (
            load_int32(source, index, 4, True),
            load_int32(source, b, 4, True),
            load_int32(source, c, 4, True),
            load_int32(source, d, 4, True),
        )
    prefetch(source, later)
    if size == 2:
        prefetch(source, later + _LINE)
        return (
            load_int32(source, index, 2, signed),
            load_int32(source, b, 2, signed),
            load_int32(source, c, 2, signed),
            load_int32(source, d, 2, signed),
        )
    return (
        load_int32(source, index, 1, signed),
        load_int32(source, b, 1, signed),
        load_int32(source, c, 1, signed),
        load_int32(source, d, 1, signed),
    )


@intrinsic
def _store_block_as(
    typing_context: Any,
    target: types.Array,
    index: types.Integer,
    a: Vector,
    b: Vector,
    c: Vector,
    d: Vector,
    number_class: Any,
) -> Generated:
    element = number_class.dtype

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        def joined(x: Any, y: Any) -> Any:
            places = list(range(2 * x.type.count))
            return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places))

        whole = joined(joined(values[2], values[3]), joined(values[4], values[5]))
        kind = ir.VectorType(llvm_vector(element).element, BLOCK)
        place = place_of(context, builder, target, values, kind)
        builder.store(whole if whole.type == kind else builder.trunc(whole, kind), place, align=element.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(target, index, a, b, c, d, number_class), generate


@device
def store_block(target: Array, index: Number, a: Number, b: Number, c: Number, d: Number, size: int) -> None:
    """store_integers of four vectors."""
    if size == 1:
        _store_block_as(target, index, a, b, c, d, np.int8)
    elif size == 2:
        _store_block_as(target, index, a, b, c, d, np.int16)
    else:
        _store_block_as(target, index, a, b, c, d, np.int32)
