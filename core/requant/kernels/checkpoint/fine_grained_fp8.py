"""The kernel from weights to f8E4M3FN with a factor for each block of rows and columns.

The grid of blocks begins at the first row and column of what is handed in; blocks at its right and lower edges may be
cut off. A block is read twice in a row, for its largest magnitude and for its codes, the second time from the cache.
"""

from __future__ import annotations

import numpy as np

from requant.kernels.jit.jit import Array, Number, device, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import F32, I32, I64, U8, Bool, In, Out
from requant.kernels.scalar.rounding import bits_of_f32, f32_of_bits
from requant.kernels.simd.memory import store_as
from requant.kernels.simd.narrow import codes_of_e4m3
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import bits_as, first, larger, largest, smaller, splat
from requant.kernels.simd.widen import load_f32

_MAGNITUDE = np.int32(0x7FFFFFFF)
_INFINITY = np.int32(0x7F800000)
_LARGEST = np.float32(448.0)
_SMALLEST_SCALE_BITS = np.int32(0x00800000)
_ONE = np.float32(1.0)


@device
def _magnitude_bits(source: Array, i: Number, kind: int, mask: Number = None) -> Number:
    return bits_as(load_f32(source, i, kind, mask), np.int32) & splat(_MAGNITUDE)


@device
def _largest_magnitude(source: Array, kind: int, at: Number, rows: Number, width: Number, columns: Number) -> Number:
    """The bits of the largest |w| of a block that begins at element `at`; beyond those of infinity if one is NaN."""
    most = splat(np.int32(0))
    for row in range(rows):
        begin = at + row * columns
        end = begin + width
        whole = end - width % LANES
        for i in range(begin, whole, LANES):
            most = larger(most, _magnitude_bits(source, i, kind))
        if whole < end:
            most = larger(most, _magnitude_bits(source, whole, kind, first(end - whole)))
    return largest(most)


@device
def _codes(source: Array, i: Number, kind: int, factor: Number, mask: Number = None) -> Number:
    value = load_f32(source, i, kind, mask) * factor
    # A NaN stays one: each comparison of it is false, and the second takes what it compares with.
    saturated = larger(splat(-_LARGEST), smaller(splat(_LARGEST), value))
    return codes_of_e4m3(saturated)


@kernel()
def quantize(
    source: In[U8],  # the bytes of rows * columns floats
    kind: I64,  # their FloatKind
    codes: Out[U8],
    inverses: Out[F32],  # inverse scales, [blocks along the rows, blocks along the columns]
    rows: I64,
    columns: I64,
    height: I64,  # rows of a block
    width: I64,  # columns of a block
    powers: Bool,  # whether an inverse scale is the power of two not below, as torch finds it
    reach: In[I32],  # how far above 2^(e-127) torch's log2 still gives e - 127, for 256 exponents e
) -> None:
    """code = e4m3(clamp(f32(w * s), -448, 448)), s = f32(f32(1 / amax) * 448), 1 where amax is 0 or NaN.

    The inverse scale is f32(1 / s). Of `powers` it is 2^ceil(log2 of that), and s its reciprocal.
    """
    prefer_wide_vectors()
    at = 0
    for top in range(0, rows, height):
        block_rows = min(height, rows - top)
        for left in range(0, columns, width):
            block_columns = min(width, columns - left)
            begin = top * columns + left
            bits = _largest_magnitude(source, kind, begin, block_rows, block_columns, columns)
            scale = _ONE
            if (bits > 0) & (bits <= _INFINITY):
                scale = np.float32(_ONE / f32_of_bits(bits)) * _LARGEST
            inverse = np.float32(_ONE / scale)
            if powers:
                inverse_bits = max(bits_of_f32(inverse), _SMALLEST_SCALE_BITS)
                exponent = inverse_bits >> 23
                above = np.int32(inverse_bits & 0x7FFFFF) > reach[exponent & 255]
                inverse = f32_of_bits(np.int32(np.int32(exponent + above) << 23))
                # E8M0 has no infinity.
                inverse = inverse if exponent < 255 else np.float32(np.nan)
                scale = np.float32(_ONE / inverse)
            inverses[at] = inverse
            at += 1
            factor = splat(scale)
            for row in range(block_rows):
                start = begin + row * columns
                end = start + block_columns
                whole = end - block_columns % LANES
                for i in range(start, whole, LANES):
                    store_as(codes, i, _codes(source, i, kind, factor), np.int8)
                if whole < end:
                    valid = first(end - whole)
                    store_as(codes, whole, _codes(source, whole, kind, factor, valid), np.int8, valid)
