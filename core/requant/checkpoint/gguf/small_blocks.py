"""GGUF's FP4, ternary and binary types. Source: ggml 0.25's ggml-quants.c, the `_ref` functions.

| type  | block | scale                                             | code                                    |
|-------|-------|---------------------------------------------------|-----------------------------------------|
| MXFP4 | 32    | 2^(e - 127), e = floor(log2(amax)) - 2 + 127; 0   | nearest E2M1 of x / scale, a tie to the |
|       |       | where amax is 0                                   | smaller magnitude, -0 as 0              |
| TQ1_0 | 256   | d = amax                                          | RNA(f32(x * id)) + 1                    |
| TQ2_0 | 256   | d = amax                                          | RNA(f32(x * id)) + 1                    |

log2 is rounded to f32 before its floor, so that amax just below a power of two counts as that power. id = f32(1 / d),
0 where d is 0; d is stored as f16, last in its block. Ternary codes are 0, 1 and 2 for -d, 0 and d.

- MXFP4, 17 bytes: e, and 16 bytes with the code of element j below that of element j + 16.
- TQ2_0, 66 bytes: byte 32 h + j has the codes of the elements 128 h + j + 32 i at bit 2 i.
- TQ1_0, 54 bytes: a byte has the codes of five elements as the digits of a number q in base 3, the first one highest,
  as ceil(256 q / 243). Bytes 0 to 31 have the elements j + 32 i, bytes 32 to 47 the elements 160 + j + 16 i, bytes 48
  to 51 the four elements 240 + j + 4 i and a digit 0.

These are only read:

- NVFP4, 36 bytes for 64 elements: four f8E4M3FN scales without their signs, 0 for 0x7F, then 32 bytes of E2M1 codes. Of
  16 elements with one scale, element j lies below element j + 8. -0 is 0.
- Q1_0, 18 bytes for 128 elements: d as f16, then a bit for each, the first one lowest: -d or d.
- Q2_0, 18 bytes for 64 elements: d as f16, then codes of 2 bits, the first one lowest: -d, 0, d and 2 d.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.gguf.blocks import Unpacked, check, f16_at, fields, packed_fields, stored_f16
from requant.convert.small_floats import decode_table

Array = NDArray[Any]

_E2M1 = decode_table("f4E2M1FN")
# In halves, as ggml has them: the scale is halved too. They are integers, without -0.
_E2M1_HALVES = (2 * _E2M1).astype("|i1")
# A magnitude above the k-th of these has at least code k + 1.
_MIDPOINTS = (_E2M1[:7] + _E2M1[1:8]) / np.float32(2)
_SMALLEST_AMAX = 2.0**-125
_E4M3_HALVES = np.abs(decode_table("f8E4M3FN")) / np.float32(2)
# The code of a NaN: with the sign bit ggml takes it for a number.
_E4M3_HALVES[0x7F], _E4M3_HALVES[0xFF] = 0, 240
UE4M3_VALUES = 2 * _E4M3_HALVES
"""The scales of NVFP4 by their bytes, f32."""
E2M1_HALVES = 2 * _E2M1[np.arange(256) % 16]
"""Twice the values of codes by the bytes that hold one, f32, with -0."""
_DIGITS = (81, 27, 9, 3, 1)
# Of TQ1_0: the first element, bytes and codes in each byte of the three parts of a block.
_TERNARY_PARTS = ((0, 32, 5), (160, 16, 5), (240, 4, 4))


def write_mxfp4(values: Array) -> Array:
    """Return the bytes of blocks [n, 32]. Raises PreconditionError where magnitudes are too small."""
    magnitudes = np.abs(values)
    largest = magnitudes.max(axis=1)
    usable = (largest == 0) | (largest >= np.float32(_SMALLEST_AMAX))
    check(usable, 32, "all magnitudes of the block at index {index} are below 2^-125, where ggml's MXFP4 is undefined")
    with np.errstate(divide="ignore"):
        exponents = np.where(largest > 0, np.floor(np.log2(largest.astype("<f8")).astype("<f4")) - 2 + 127, 0)
    scales = np.ldexp(np.float32(1), exponents.astype("<i4") - 127).astype("<f4")
    codes = np.zeros(values.shape, "|u1")
    for midpoint in _MIDPOINTS:
        codes += magnitudes > (midpoint * scales)[:, None]
    codes |= ((values < 0) & (codes > 0)).view("|u1") << 3
    return np.concatenate([exponents.astype("|u1")[:, None], packed_fields(codes.reshape(-1, 2, 16))], axis=1)


def unpack_mxfp4(blocks: Array) -> Unpacked:
    halves = np.ldexp(np.float32(1), blocks[:, :1].astype("<i4") - 128).astype("<f4")
    return Unpacked(_E2M1_HALVES[fields(blocks[:, 1:], 4).reshape(-1, 32)], halves, halves)


def unpack_nvfp4(blocks: Array) -> Unpacked:
    codes = fields(blocks[:, 4:].reshape(-1, 4, 8), 4).reshape(-1, 64)
    scales = _E4M3_HALVES[blocks[:, :4]]
    return Unpacked(_E2M1_HALVES[codes], scales, scales[:, :1])


def read_q1_0(blocks: Array) -> Array:
    """Return the values: -d is d with the other sign, also of a NaN."""
    scales = f16_at(blocks, 0)
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").view(np.bool_)
    values: Array = np.where(bits, scales, -scales)
    return values.reshape(-1)


def unpack_q1_0(blocks: Array) -> Unpacked:
    heads = f16_at(blocks, 0)
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").view("|i1")
    return Unpacked(bits * np.int8(2) - np.int8(1), heads, heads)


def unpack_q2_0(blocks: Array) -> Unpacked:
    heads = f16_at(blocks, 0)
    # Four consecutive elements are in a byte.
    codes = fields(blocks[:, 2:, None], 2).reshape(-1, 64).view("|i1") - np.int8(1)
    return Unpacked(codes, heads, heads)


def _ternary_codes(values: Array) -> tuple[Array, Array]:
    """Return the codes, and d as the bytes of an f16."""
    largest = np.abs(values).max(axis=1)
    with np.errstate(divide="ignore", over="ignore"):
        reciprocals = np.where(largest == 0, np.float32(0), np.float32(1) / largest)
    check(
        np.isfinite(reciprocals), 256, "f32 cannot represent the reciprocal of the scale of the block at index {index}"
    )
    scaled = values * reciprocals[:, None]
    # Magnitudes are at most 1 and the rounding of the product: half and above is away from zero.
    codes = (1 + (scaled >= 0.5).view("|i1") - (scaled <= -0.5).view("|i1")).astype("|u1")
    return codes, stored_f16(largest, 256).reshape(-1, 1).view("|u1")


def write_tq1_0(values: Array) -> Array:
    """Return the bytes of blocks [n, 256]. Raises PreconditionError for scales beyond f16, or without reciprocal."""
    codes, scales = _ternary_codes(values)
    parts = []
    for begin, width, count in _TERNARY_PARTS:
        digits = codes[:, begin : begin + width * count].reshape(-1, count, width).astype("<u2")
        number = (digits * np.array(_DIGITS[:count], "<u2")[:, None]).sum(axis=1, dtype="<u2")
        parts.append(((number * 256 + 242) // 243).astype("|u1"))
    return np.concatenate([*parts, scales], axis=1)


def unpack_tq1_0(blocks: Array) -> Unpacked:
    codes, at = [], 0
    for _, width, count in _TERNARY_PARTS:
        packed = blocks[:, at : at + width]
        at += width
        for power in _DIGITS[::-1][:count]:
            # The multiplication wraps in a byte: the digits above leave it.
            codes += [((packed * np.uint8(power)).astype("<u2") * 3 >> 8).astype("|i1") - np.int8(1)]
    heads = f16_at(blocks, at)
    return Unpacked(np.concatenate(codes, axis=1), heads, heads)


def write_tq2_0(values: Array) -> Array:
    """Return TQ2_0 blocks: the codes and scales of TQ1_0, four codes to a byte."""
    codes, scales = _ternary_codes(values)
    packed = packed_fields(codes.reshape(-1, 2, 4, 32))
    return np.concatenate([packed.reshape(-1, 64), scales], axis=1)


def unpack_tq2_0(blocks: Array) -> Unpacked:
    codes = fields(blocks[:, :64].reshape(-1, 2, 32), 2).reshape(-1, 256).view("|i1") - np.int8(1)
    heads = f16_at(blocks, 64)
    return Unpacked(codes, heads, heads)
