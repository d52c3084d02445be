"""Bytes to bytes by a table of 256.

Processors with AVX-512 VBMI look up 64 bytes by two instructions, each of which takes 7 bits of an index into a table
of 128. Elsewhere it is a loop, byte by byte, and plans that have better do not take it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from requant.kernels.jit.jit import intrinsic, kernel
from requant.kernels.jit.processor import HAS_AVX512BW, HAS_VBMI, prefer_wide_vectors
from requant.kernels.jit.signature import I64, U8, In, Out
from requant.kernels.simd.memory import place_of, prefetch
from requant.kernels.simd.vector import Generated, Vector, call_llvm, llvm_vector
from requant.kernels.simd.vectors import (
    count,
    repeated,
)

HAS_TABLES = HAS_AVX512BW and HAS_VBMI
"""Whether a table is faster than arithmetic."""

BYTES = 64
"""Elements in a vector."""

_KIND = Vector(types.uint8, BYTES)
# What is asked for ahead of its use, from memory; as far as measured to be best.
_AHEAD = 4096


@intrinsic
def _load(typing_context: Any, array: types.Array, index: types.Integer) -> Generated:
    """array[index : index + 64]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = llvm_vector(types.uint8, BYTES)
        return builder.load(place_of(context, builder, array, arguments, kind), align=1)

    return _KIND(array, index), generate


@intrinsic
def _store(typing_context: Any, array: types.Array, index: types.Integer, vector: Vector) -> Generated:
    """array[index : index + 64] = vector."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = place_of(context, builder, array, arguments, arguments[2].type)
        builder.store(arguments[2], place, align=1)
        return context.get_dummy_value()

    return types.void(array, index, vector), generate


@intrinsic
def _splat(typing_context: Any, value: types.Integer) -> Generated:
    """64 times the lowest byte of a number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return repeated(builder, builder.trunc(arguments[0], ir.IntType(8)), BYTES)

    return _KIND(value), generate


@intrinsic
def _look_up(typing_context: Any, x: Vector, a: Vector, b: Vector, c: Vector, d: Vector) -> Generated:
    """The entries of the table, 64 in each of four vectors, at the bytes of x."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        index, *table = arguments
        kind = index.type
        lower, upper = (
            call_llvm(builder, "llvm.x86.avx512.vpermi2var.qi.512", kind, [first, index, second])
            for first, second in (table[:2], table[2:])
        )
        return builder.select(builder.icmp_signed("<", index, ir.Constant(kind, [0] * BYTES)), upper, lower)

    return _KIND(x, a, b, c, d), generate


@kernel()
def look_up(
    source: In[U8],
    target: Out[U8],
    table: In[U8],
    saturated: In[I64],  # those that saturate low: the first, and how many follow; those that saturate high
    counts: Out[I64],  # added to: low, high
) -> None:
    """target[i] = table[source[i]], and how many bytes saturate on each side.

    Those that do follow one another, after 255 with 0: b of them from a on, b < 256, are those with source[i] - a < b,
    modulo 256.
    """
    prefer_wide_vectors()
    size = source.size
    first_low, lows, first_high, highs = saturated[0], saturated[1], saturated[2], saturated[3]
    low, high = np.int64(0), np.int64(0)
    done = 0
    if HAS_TABLES:
        done = size & -BYTES
        a, b, c, d = _load(table, 0), _load(table, BYTES), _load(table, 2 * BYTES), _load(table, 3 * BYTES)
        if lows + highs == 0:
            for i in range(0, done, BYTES):
                prefetch(source, i + _AHEAD)
                _store(target, i, _look_up(_load(source, i), a, b, c, d))
        else:
            low_from, high_from = _splat(first_low), _splat(first_high)
            low_size, high_size = _splat(lows), _splat(highs)
            for i in range(0, done, BYTES):
                prefetch(source, i + _AHEAD)
                x = _load(source, i)
                low += count((x - low_from) < low_size)
                high += count((x - high_from) < high_size)
                _store(target, i, _look_up(x, a, b, c, d))
    for i in range(done, size):
        # A byte, and the table has an entry for each.
        x = np.int64(source[i])
        low += ((x - first_low) & 255) < lows
        high += ((x - first_high) & 255) < highs
        target[i] = table[x]
    counts[0] += low
    counts[1] += high
