"""Integers of any width between memory and vectors, of int64 or int32, one or four at a time."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from requant.kernels.jit.jit import Array, Number, device, intrinsic
from requant.kernels.simd.memory import load_as, place_of, prefetch, store_as
from requant.kernels.simd.vector import LANES, Generated, Vector, llvm_vector
from requant.kernels.simd.vectors import convert

BLOCK = 4 * LANES
"""Elements in four vectors."""

# Bytes from what is loaded to what is asked for ahead of its use, and bytes that come together.
_AHEAD = 4096
_LINE = 64


class Storage(IntEnum):
    """What the bytes of an array are."""

    I8 = 0
    U8 = 1
    I16 = 2
    U16 = 3
    I32 = 4
    U32 = 5
    I64 = 6


_I8, _U8, _I16, _U16, _I32, _U32, _I64 = map(int, Storage)


def storage_of(dtype: np.dtype[Any]) -> Storage:
    """Return the storage of an array's elements."""
    return Storage[dtype.name.replace("uint", "U").replace("int", "I")]


@device
def load_int32(source: Array, index: Number, storage: int, mask: Number = None) -> Number:
    """Sixteen integers of up to 32 bits, as int32."""
    if storage == _I8:
        return convert(load_as(source, index, np.int8, mask), np.int32)
    if storage == _U8:
        return convert(load_as(source, index, np.uint8, mask), np.int32)
    if storage == _I16:
        return convert(load_as(source, index, np.int16, mask), np.int32)
    if storage == _U16:
        return convert(load_as(source, index, np.uint16, mask), np.int32)
    return load_as(source, index, np.int32, mask)


@device
def load_int64(source: Array, index: Number, storage: int, mask: Number = None) -> Number:
    """Sixteen integers as int64."""
    if storage == _I64:
        return load_as(source, index, np.int64, mask)
    if storage == _U32:
        return convert(load_as(source, index, np.uint32, mask), np.int64)
    return convert(load_int32(source, index, storage, mask), np.int64)


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
def _load_block_as(source: Array, index: Number, storage: int, size: int) -> tuple[Number, Number, Number, Number]:
    for near in range(0, BLOCK * size, _LINE):
        prefetch(source, index * size + _AHEAD + near)
    return (
        load_int32(source, index, storage),
        load_int32(source, index + LANES, storage),
        load_int32(source, index + 2 * LANES, storage),
        load_int32(source, index + 3 * LANES, storage),
    )


@device
def load_block(source: Array, index: Number, storage: int) -> tuple[Number, Number, Number, Number]:
    """load_int32 of four vectors, with one choice of the type for all. What comes later is asked for."""
    if storage == _I8:
        return _load_block_as(source, index, _I8, 1)
    if storage == _U8:
        return _load_block_as(source, index, _U8, 1)
    if storage == _I16:
        return _load_block_as(source, index, _I16, 2)
    if storage == _U16:
        return _load_block_as(source, index, _U16, 2)
    return _load_block_as(source, index, _I32, 4)


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
