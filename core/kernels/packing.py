"""Dense packing of codes narrower than a byte, lowest bits first.

Code k takes bits [k * width, (k + 1) * width) of the byte string, bit 0 being the lowest of byte 0: two i4 to a byte
with the first in the low half, as ONNX packs them, and codes of 3, 5, 6 or 7 bits across the bytes.
"""

from __future__ import annotations

from numba import types

from core.kernels._jit import Array, Number, kernel, readable, writable


@kernel((readable(types.uint8), writable(types.uint8), types.int64))
def pack(codes: Array, packed: Array, width: Number) -> None:
    """Write ceil(codes * width / 8) bytes; the last one is filled with zeros."""
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
