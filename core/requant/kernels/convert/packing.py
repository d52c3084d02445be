"""Dense packing of codes of 1 to 63 bits, lowest bits first.

Code k takes bits [k * width, (k + 1) * width) of the byte string, bit 0 being the lowest of byte 0: two i4 to a byte
with the first in the low half, as ONNX packs them, and codes of 3, 5 or 12 bits across the bytes.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numba import types

from requant.kernels.jit.jit import Array, Kernel, Number, device, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import I64, U8, U16, U32, U64, In, Out
from requant.kernels.simd.memory import load_as, store_as
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import (
    convert,
    first,
    splat,
)

Code = TypeVar("Code", U16, U32, U64)

_HALF_BYTE = 4
_WORD = 32
_WORD_MASK = np.uint64(0xFFFFFFFF)
_MAX_AT_ONCE = 57


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
        store_as(packed, i, _half_bytes(load_as(codes, i, np.int16)), np.int8)
    if whole < pairs:
        valid = first(pairs - whole)
        store_as(packed, whole, _half_bytes(load_as(codes, whole, np.int16, valid)), np.int8, valid)
    if codes.size > 2 * pairs:
        packed[pairs] = codes[2 * pairs] & 15


@device
def _unpack_half_bytes(packed: Array, codes: Array, sign: Number) -> None:
    pairs = codes.size // 2
    whole = pairs - pairs % LANES
    bit = splat(np.int16(sign))
    for i in range(0, whole, LANES):
        store_as(codes, i, _codes(convert(load_as(packed, i, np.uint8), np.int16), bit), np.int16)
    if whole < pairs:
        valid = first(pairs - whole)
        byte = convert(load_as(packed, whole, np.uint8, valid), np.int16)
        store_as(codes, whole, _codes(byte, bit), np.int16, valid)
    if codes.size > 2 * pairs:
        codes[2 * pairs] = (((packed[pairs] & 15) ^ sign) - sign) & 255


@device
def _pack_bits(codes: Array, packed: Array, width: int, last: int) -> None:
    """Pack by four bytes at a time: at most 31 bits are held when the up to 32 of the next part come.

    A code of more than 32 bits is two parts, of 32 and of `last` bits; others are one part, of `last` = `width` bits.
    Four bytes are written when all their bits are there, so they end no later than the bits of the codes do.
    """
    mask = (np.uint64(1) << np.uint64(last)) - np.uint64(1)
    held = np.uint64(0)
    bits = 0
    at = 0
    for i in range(codes.size):
        code = np.uint64(codes[i])
        if width > _WORD:
            held |= (code & _WORD_MASK) << np.uint64(bits)
            _write_word(packed, at, held)
            at += 4
            held >>= np.uint64(_WORD)
            code >>= np.uint64(_WORD)
        held |= (code & mask) << np.uint64(bits)
        bits += last
        if bits >= _WORD:
            _write_word(packed, at, held)
            at += 4
            held >>= np.uint64(_WORD)
            bits -= _WORD
    while bits > 0:
        packed[at] = held & np.uint64(255)
        at += 1
        held >>= np.uint64(8)
        bits -= 8


@device
def _write_word(packed: Array, at: int, bits: Number) -> None:
    packed[at] = bits & np.uint64(255)
    packed[at + 1] = (bits >> np.uint64(8)) & np.uint64(255)
    packed[at + 2] = (bits >> np.uint64(16)) & np.uint64(255)
    packed[at + 3] = (bits >> np.uint64(24)) & np.uint64(255)


@device
def _unpack_bits(packed: Array, codes: Array, width: int, sign: Number) -> None:
    """Take each code out of the eight bytes in which it begins, or bit by bit where so many do not follow.

    Of the first codes each ends 64 bits or more before the end, so a read that begins in one ends before it too. All
    others end with the bytes at the latest.
    """
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    far_from_end = min(codes.size, max(0, 8 * packed.size - 64) // width)
    for i in range(far_from_end):
        if width <= _MAX_AT_ONCE:
            code = _eight_bytes(packed, i * width) & mask
        else:
            low = _eight_bytes(packed, i * width) & _WORD_MASK
            code = (low | (_eight_bytes(packed, i * width + _WORD) << np.uint64(_WORD))) & mask
        codes[i] = (code ^ sign) - sign
    for i in range(far_from_end, codes.size):
        code = np.uint64(0)
        for bit in range(width):
            place = i * width + bit
            code |= np.uint64((packed[place >> 3] >> (place & 7)) & 1) << np.uint64(bit)
        codes[i] = (code ^ sign) - sign


@device
def _eight_bytes(packed: Array, bit: int) -> Number:
    """At least 57 bits from one on. LLVM makes a single load of this."""
    at = bit >> 3
    bits = np.uint64(0)
    for i in range(8):
        bits |= np.uint64(packed[at + i]) << np.uint64(8 * i)
    return bits >> np.uint64(bit & 7)


@kernel()
def pack(codes: In[U8], packed: Out[U8], width: I64) -> None:
    """Write ceil(codes * width / 8) bytes; the last one is filled with zeros."""
    prefer_wide_vectors()
    if width == _HALF_BYTE:
        _pack_half_bytes(codes, packed)
    else:
        _pack_bits(codes, packed, width, width)


@kernel()
def unpack(packed: In[U8], codes: Out[U8], width: I64, sign: U64) -> None:
    """Write each code, with the bit `sign` (0 for none) extended through the rest of it."""
    prefer_wide_vectors()
    if width == _HALF_BYTE:
        _unpack_half_bytes(packed, codes, np.int64(sign))
    else:
        _unpack_bits(packed, codes, width, sign)


def _wide(number: types.Type) -> tuple[Kernel, Kernel]:
    """Return the same two kernels for codes of 9 and more bits, kept as `number`."""

    @kernel({Code: number})
    def pack_wide(codes: In[Code], packed: Out[U8], width: I64) -> None:
        _pack_bits(codes, packed, width, width if width <= _WORD else width - _WORD)

    @kernel({Code: number})
    def unpack_wide(packed: In[U8], codes: Out[Code], width: I64, sign: U64) -> None:
        _unpack_bits(packed, codes, width, sign)

    return pack_wide, unpack_wide


_WIDE = {2: _wide(types.uint16), 4: _wide(types.uint32), 8: _wide(types.uint64)}
PACK = {1: pack, **{size: kernels[0] for size, kernels in _WIDE.items()}}
"""By the bytes in which a code is kept."""
UNPACK = {1: unpack, **{size: kernels[1] for size, kernels in _WIDE.items()}}
