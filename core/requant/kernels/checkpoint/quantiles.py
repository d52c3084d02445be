"""Kernels between blocks of floats and the places of quantiles, two to a byte with the first in its upper half."""

from __future__ import annotations

import numpy as np

from requant.kernels.jit.jit import kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import F32, I64, U8, U16, In, Out
from requant.kernels.scalar.rounding import f32_of_bits
from requant.kernels.simd.memory import elements_of, store_as
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import bits_as, convert, larger, largest, select, splat
from requant.kernels.simd.widen import load_f32

_MAGNITUDE = np.int32(0x7FFFFFFF)
_ONE = np.float32(1.0)
_CODES = 16


@kernel()
def quantize(
    source: In[U8],  # as bytes: whole blocks of floats
    kind: I64,  # their kind, by FloatKind
    width: I64,  # elements of a block, a multiple of 16
    midpoints: In[F32],  # the midpoints between the 16 quantiles, ascending
    least: F32,  # the least divisor
    absmax: Out[F32],  # the largest magnitude of each block
    packed: Out[U8],  # packed codes
) -> None:
    """code = how many midpoints are below f32(w * f32(1 / max(absmax, least))); 15 of a NaN."""
    prefer_wide_vectors()
    floats = elements_of(source)
    codes = np.empty(width, np.uint8)
    bytes_ = elements_of(codes)
    for block in range(absmax.size):
        begin = block * width
        most = splat(np.int32(0))
        for i in range(begin, begin + width, LANES):
            most = larger(most, bits_as(load_f32(floats, i, kind), np.int32) & splat(_MAGNITUDE))
        value = f32_of_bits(largest(most))
        absmax[block] = value
        divisor = least if value < least else value
        factor = splat(_ONE / divisor)
        for i in range(0, width, LANES):
            x = load_f32(floats, begin + i, kind) * factor
            code = splat(np.int32(0))
            for place in range(_CODES - 1):
                # A mask is -1 where it is set.
                code = code - convert(x > splat(midpoints[place]), np.int32)
            code = select(x == x, code, splat(np.int32(_CODES - 1)))
            store_as(bytes_, i, code, np.int8)
        pairs = codes.view(np.uint16)
        target = packed[begin // 2 : (begin + width) // 2]
        for i in range(target.size):
            target[i] = ((pairs[i] << 4) | (pairs[i] >> 8)) & 255


@kernel()
def unpack(packed: In[U8], pairs: Out[U16]) -> None:
    """Write each byte's upper and then its lower half, as two bytes."""
    prefer_wide_vectors()
    for i in range(packed.size):
        byte = np.uint16(packed[i])
        pairs[i] = (byte >> np.uint16(4)) | ((byte & np.uint16(15)) << np.uint16(8))
