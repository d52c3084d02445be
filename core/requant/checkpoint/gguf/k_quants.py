"""GGUF's K-quants: blocks of 256 elements, whose scales are integers too. Source: ggml 0.25's ggml-quants.c.

| type | bytes | fields in their order                           | group | value of code q                          |
|------|-------|-------------------------------------------------|-------|------------------------------------------|
| Q2_K | 84    | scales 16, low 64, d, dmin                      | 16    | (d * (s & 15)) * q - dmin * (s >> 4)     |
| Q3_K | 110   | high 32, low 64, scales 12, d                   | 16    | (d * (s - 32)) * (q - 4)                 |
| Q4_K | 144   | d, dmin, scales 12, low 128                     | 32    | (d * s) * q - dmin * m                   |
| Q5_K | 176   | d, dmin, scales 12, high 32, low 128            | 32    | (d * s) * q - dmin * m                   |
| Q6_K | 210   | low 128, high 64, scales 16, d                  | 16    | (d * s) * (q - 32), s an int8            |
| Q8_K | 292   | d, codes 256, sums 32                           | 256   | d * q, q an int8; d an f32               |

d and dmin are f16; each product and difference is rounded to f32. Group i has the elements from i * width on.

- Fields of 2 bits: byte 32 n + l has the elements 128 n + 32 j + l at bit 2 j: the lower bits of Q2_K and Q3_K, the
  upper ones of Q6_K.
- Fields of 4 bits: byte 32 n + l has the elements 64 n + l and 64 n + 32 + l. In Q6_K byte 64 n + l has the elements
  128 n + l and 128 n + 64 + l.
- Fields of 1 bit: byte l has the element 32 j + l at bit j.
- Scales of 6 bits, Q3_K: byte i has the lower four of i and i + 8, byte 8 + i % 4 the upper two of i at bit 2 (i / 4).
- Scales and minimums of 6 bits, Q4_K and Q5_K: bytes 0 to 3 and 4 to 7 have those of the groups 0 to 3; byte 8 + i has
  the lower four bits of both of group 4 + i, whose upper two are the upper ones of the bytes i and 4 + i.

Q8_K is what activations are computed in. Files do not have it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.gguf.blocks import Unpacked, f16_at, fields

Array = NDArray[Any]

_ELEMENTS = 256
_SIX_BITS, _FOUR_BITS = np.uint8(63), np.uint8(15)


def unpack_q2_k(blocks: Array) -> Unpacked:
    scales, heads = blocks[:, :16], f16_at(blocks, 80, 2)
    codes = fields(blocks[:, 16:80].reshape(-1, 2, 32), 2)
    with np.errstate(invalid="ignore"):
        return Unpacked(
            codes.reshape(-1, _ELEMENTS).view("|i1"),
            heads[:, :1] * (scales & _FOUR_BITS).astype("<f4"),
            heads,
            heads[:, 1:] * (scales >> 4).astype("<f4"),
        )


def unpack_q3_k(blocks: Array) -> Unpacked:
    low = fields(blocks[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, _ELEMENTS)
    high = fields(blocks[:, :32], 1).reshape(-1, _ELEMENTS)
    scales = fields(blocks[:, 96:104], 4).reshape(-1, 16) | fields(blocks[:, 104:108], 2).reshape(-1, 16) << 4
    heads = f16_at(blocks, 108)
    with np.errstate(invalid="ignore"):
        factors = heads * (scales.astype("<f4") - np.float32(32))
    return Unpacked((low | high << 2).view("|i1") - np.int8(4), factors, heads)


def _scales_and_minimums(packed: Array) -> tuple[Array, Array]:
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & _SIX_BITS, third & _FOUR_BITS | first >> 6 << 4], axis=1)
    minimums = np.concatenate([second & _SIX_BITS, third >> 4 | second >> 6 << 4], axis=1)
    return scales, minimums


def _unpacked_with_minimums(codes: Array, blocks: Array) -> Unpacked:
    """Of Q4_K and Q5_K, which begin alike."""
    heads = f16_at(blocks, 0, 2)
    scales, minimums = _scales_and_minimums(blocks[:, 4:16])
    with np.errstate(invalid="ignore"):
        factors, subtracted = heads[:, :1] * scales.astype("<f4"), heads[:, 1:] * minimums.astype("<f4")
    return Unpacked(codes.reshape(-1, _ELEMENTS).view("|i1"), factors, heads, subtracted)


def unpack_q4_k(blocks: Array) -> Unpacked:
    return _unpacked_with_minimums(fields(blocks[:, 16:144].reshape(-1, 4, 32), 4), blocks)


def unpack_q5_k(blocks: Array) -> Unpacked:
    low = fields(blocks[:, 48:176].reshape(-1, 4, 32), 4).reshape(-1, 8, 32)
    return _unpacked_with_minimums(low | fields(blocks[:, 16:48], 1) << 4, blocks)


def unpack_q6_k(blocks: Array) -> Unpacked:
    low = fields(blocks[:, :128].reshape(-1, 2, 64), 4).reshape(-1, _ELEMENTS)
    high = fields(blocks[:, 128:192].reshape(-1, 2, 32), 2).reshape(-1, _ELEMENTS)
    heads = f16_at(blocks, 208)
    with np.errstate(invalid="ignore"):
        factors = heads * blocks[:, 192:208].view("|i1").astype("<f4")
    return Unpacked((low | high << 4).view("|i1") - np.int8(32), factors, heads)


def unpack_q8_k(blocks: Array) -> Unpacked:
    heads = np.ascontiguousarray(blocks[:, :4]).view("<f4")
    # A signalling NaN becomes a quiet one, as by arithmetic.
    quiet = (heads.view("<u4") | np.uint32(0x00400000)).view("<f4")
    heads = np.where(np.isnan(heads), quiet, heads)
    return Unpacked(blocks[:, 4:260].view("|i1"), heads, heads)
