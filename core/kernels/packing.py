"""Dense packing of codes narrower than a byte, lowest bits first.

Code k takes bits [k * width, (k + 1) * width) of the byte string, bit 0 being the lowest of byte 0: two i4 to a byte
with the first in the low half, as ONNX packs them, and codes of 3, 5, 6 or 7 bits across the bytes.
"""

from __future__ import annotations

import numpy as np
from numba import types

from core.kernels._jit import Array, Number, device, kernel, readable, writable
from core.kernels.processor import prefer_wide_vectors
from core.kernels.vector import LANES
from core.kernels.vector_memory import load_all_as, load_as, store_all_as, store_as
from core.kernels.vectors import (
    convert,
    first,
    splat,
)

_HALF_BYTE = 4


@device
def _half_bytes(pair: Number) -> Number:
    """Two codes are one number of 16 bits, whose parts move together."""
    return (pair & splat(np.int16(0x0F))) | ((pair >> splat(np.int16(4))) & splat(np.int16(0xF0)))


@device
def _codes(byte: Number, bit: Number) -> Number:
    """The codes of a byte as one number of 16 bits, with `bit` extended through the rest of both."""
    low = (((byte & splat(np.int16(15))) ^ bit) - bit) & splat(np.int16(255))
    high = (((byte >> splat(np.int16(4))) ^ bit) - bit) << splat(np.int16(8))
    return low | high


@device
def _pack_half_bytes(codes: Array, packed: Array) -> None:
    pairs = codes.size // 2
    whole = pairs - pairs % LANES
    for i in range(0, whole, LANES):
        store_all_as(packed, i, _half_bytes(load_all_as(codes, i, np.int16)), np.int8)
    if whole < pairs:
        valid = first(pairs - whole)
        store_as(packed, whole, _half_bytes(load_as(codes, whole, valid, np.int16)), valid, np.int8)
    if codes.size > 2 * pairs:
        packed[pairs] = codes[2 * pairs] & 15


@device
def _unpack_half_bytes(packed: Array, codes: Array, sign: Number) -> None:
    pairs = codes.size // 2
    whole = pairs - pairs % LANES
    bit = splat(np.int16(sign))
    for i in range(0, whole, LANES):
        store_all_as(codes, i, _codes(convert(load_all_as(packed, i, np.uint8), np.int16), bit), np.int16)
    if whole < pairs:
        valid = first(pairs - whole)
        byte = convert(load_as(packed, whole, valid, np.uint8), np.int16)
        store_as(codes, whole, _codes(byte, bit), valid, np.int16)
    if codes.size > 2 * pairs:
        codes[2 * pairs] = (((packed[pairs] & 15) ^ sign) - sign) & 255


@kernel((readable(types.uint8), writable(types.uint8), types.int64))
def pack(codes: Array, packed: Array, width: Number) -> None:
    """Write ceil(codes * width / 8) bytes; the last one is filled with zeros."""
    prefer_wide_vectors()
    if width == _HALF_BYTE:
        _pack_half_bytes(codes, packed)
        return
    mask = (1 << width) - 1
    held = 0
    bits = 0
    at = 0
    for i in range(codes.size):
        held |= (codes[i] & mask) << bits
        bits += width
        if bits >= 8:
            packed[at] = held & 255
            at += 1
            held >>= 8
            bits -= 8
    if bits > 0:
        packed[at] = held & 255


@kernel((readable(types.uint8), writable(types.uint8), types.int64, types.int64))
def unpack(packed: Array, codes: Array, width: Number, sign: Number) -> None:
    """Write one byte for each code, with the bit `sign` (0 for none) extended through the rest of the byte."""
    prefer_wide_vectors()
    if width == _HALF_BYTE:
        _unpack_half_bytes(packed, codes, sign)
        return
    mask = (1 << width) - 1
    held = 0
    bits = 0
    at = 0
    for i in range(codes.size):
        if bits < width:
            held |= packed[at] << bits
            at += 1
            bits += 8
        code = held & mask
        codes[i] = ((code ^ sign) - sign) & 255
        held >>= width
        bits -= width
