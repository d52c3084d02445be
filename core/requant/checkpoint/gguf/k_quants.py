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

Writing (`quant_search` has the steps): of each group scale and minimum are searched; of all groups of a block they are
rounded to integers, by the largest one or, with an importance, by another search; then all elements are rounded again,
to what is stored. Where that scale is 0, the codes of the search stay. Weights, and what is tried:

| type       | without importance                | tried, in tenths   | with importance a   | tried, in twentieths |
|------------|-----------------------------------|--------------------|---------------------|----------------------|
| Q2_K       | abs(x), errors not squared        | 2.5 to 4           | a * sqrt(v + x^2)   | 2.1 to 3.9           |
| Q4_K, Q5_K | sqrt(mean of x^2 of the group) +  | 14 to 16, 30.5 to  | a * sqrt(2 v + x^2) | 14.1 to 15.9, 30.1   |
|            | abs(x)                            | 32                 |                     | to 31.9              |
| Q3_K       | x^2; codes are changed in turn    |                    | a * sqrt(2 v + x^2) | 3.1 to 4.9, tenths   |
| Q6_K       | x^2                               | 31.1 to 32.9       | a                   | the same             |

v is the mean of x^2 of the block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.gguf import quant_search as search
from requant.checkpoint.gguf.blocks import Unpacked, apart, check, f16_at, fields, packed_fields, side_by_side

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


_BEYOND = "the scale or the minimum of the block at index {index} is beyond f16's 65504"
# Scales of blocks below are zeros.
_SMALLEST = np.float32(1e-15)


def _heads(count: int, *numbers: Array) -> Array:
    """Return the bytes of the f16 that blocks store. Raises PreconditionError where one is beyond them."""
    stored = np.concatenate([apart(each, count) for each in numbers], axis=1).astype("<f2")
    check(np.isfinite(stored).all(axis=1), _ELEMENTS, _BEYOND)
    return stored.view("|u1")


def write_q2_k(values: Array, importance: Array | None) -> Array:
    """Return the bytes of blocks [n, 256]. `importance`: of each element, or None. Raises PreconditionError where d or
    dmin is beyond f16; so do the others."""
    x, count = side_by_side(values), len(values)
    if importance is None:
        tries = search.ladder(-0.5, 0.1, 15, 3)
        codes, scales, minimums = search.search_with_minimum(x, np.abs(x), 16, 3, tries, absolute=True)
        most, deepest = search.largest(scales), search.largest(minimums)
        steps = np.where(most > 0, search.nearest(np.float32(15) / most * scales), 0).astype("|u1")
        depths = np.where(deepest > 0, search.nearest(np.float32(15) / deepest * minimums), 0).astype("|u1")
        d, dmin = most / np.float32(15), deepest / np.float32(15)
    else:
        weights, tries = search.important(x, side_by_side(importance), 1), search.ladder(-0.9, 0.05, 36, 3)
        codes, scales, minimums = search.search_with_minimum(x, weights, 16, 3, tries)
        of_groups = search.sums(weights, 16)
        (steps, d), (depths, dmin) = (search.fit_positive(each, of_groups, 15) for each in (scales, minimums))
    d, dmin = search.rounded_to_f16(d), search.rounded_to_f16(dmin)
    packed = steps | depths << 4
    factors, subtracted = d * (packed & _FOUR_BITS).astype("<f4"), dmin * (packed >> 4).astype("<f4")
    search.round_again(codes, x, factors, subtracted, 0, 3)
    low = packed_fields(apart(codes, count).reshape(-1, 2, 4, 32)).reshape(-1, 64)
    return np.concatenate([apart(packed, count), low, _heads(count, d, dmin)], axis=1)


def write_q3_k(values: Array, importance: Array | None) -> Array:
    x, count = side_by_side(values), len(values)
    if importance is None:
        codes, scales = search.search_by_element(x, 16, 4)
        most = search.extreme(scales)
        inverse = np.float32(-32) / most
        # They pass through an int8.
        steps = np.clip(search.nearest(inverse * scales).astype("|i1"), -32, 31) + 32
        steps = np.where(most != 0, steps, 0).astype("|u1")
        d = np.where(most != 0, np.float32(1) / inverse, np.float32(0))
    else:
        weights = search.important(x, side_by_side(importance), 2)
        codes, scales = search.search_symmetric(x, weights, 16, 4)
        steps, d = search.search_symmetric(scales, search.sums(weights, 16), 16, 32)
    d = search.rounded_to_f16(d)
    search.round_again(codes, x, d * (steps.astype("<f4") - np.float32(32)), None, -4, 3)
    of_blocks, steps = apart(codes, count), apart(steps, count)
    high = packed_fields((of_blocks >> 2).reshape(-1, 8, 32))
    low = packed_fields((of_blocks & np.uint8(3)).reshape(-1, 2, 4, 32)).reshape(-1, 64)
    lower = packed_fields((steps & _FOUR_BITS).reshape(-1, 2, 8))
    upper = packed_fields((steps >> 4).reshape(-1, 4, 4))
    return np.concatenate([high, low, lower, upper, _heads(count, d)], axis=1)


def _packed_scales(steps: Array, depths: Array) -> Array:
    """Return the 12 bytes of `_scales_and_minimums`, along the same axis."""
    third = steps[:, 4:] & _FOUR_BITS | (depths[:, 4:] & _FOUR_BITS) << 4
    first, second = (each[:, :4] | each[:, 4:] >> 4 << 6 for each in (steps, depths))
    return np.concatenate([first, second, third], axis=1)


def _search_with_minimums(values: Array, importance: Array | None, highest: int) -> tuple[Array, Array]:
    """Return the first 16 bytes of blocks of Q4_K and Q5_K, and the codes."""
    x, count = side_by_side(values), len(values)
    if importance is None:
        # Codes of 4 bits are tried from one below, those of 5 from a half.
        tries = search.ladder(-1, 0.1, 20, highest) if highest == 15 else search.ladder(-0.5, 0.1, 15, highest)
        means = np.sqrt(search.sums(x * x, 32) / np.float32(32))
        weights = search.per_group(means, 32) + np.abs(x)
        codes, scales, minimums = search.search_with_minimum(x, weights, 32, highest, tries)
        most, deepest = search.largest(scales), search.largest(minimums)
        # As bytes first: a negative one becomes a large one.
        steps = np.minimum(search.nearest(search.quotient(63, most) * scales).astype("|u1"), _SIX_BITS)
        depths = np.minimum(search.nearest(search.quotient(63, deepest) * minimums).astype("|u1"), _SIX_BITS)
        d, dmin = most / np.float32(63), deepest / np.float32(63)
    else:
        weights, tries = search.important(x, side_by_side(importance), 2), search.ladder(-0.9, 0.05, 36, highest)
        codes, scales, minimums = search.search_with_minimum(x, weights, 32, highest, tries)
        of_groups = search.sums(weights, 32)
        (steps, d), (depths, dmin) = (search.fit_positive(each, of_groups, 63) for each in (scales, minimums))
        if highest == 31:
            steps, depths = np.minimum(steps, _SIX_BITS), np.minimum(depths, _SIX_BITS)
    d, dmin = search.rounded_to_f16(d), search.rounded_to_f16(dmin)
    packed = _packed_scales(steps, depths)
    steps, depths = _scales_and_minimums(packed)
    search.round_again(codes, x, d * steps.astype("<f4"), dmin * depths.astype("<f4"), 0, highest)
    return np.concatenate([_heads(count, d, dmin), apart(packed, count)], axis=1), apart(codes, count)


def write_q4_k(values: Array, importance: Array | None) -> Array:
    head, codes = _search_with_minimums(values, importance, 15)
    return np.concatenate([head, packed_fields(codes.reshape(-1, 4, 2, 32)).reshape(-1, 128)], axis=1)


def write_q5_k(values: Array, importance: Array | None) -> Array:
    head, codes = _search_with_minimums(values, importance, 31)
    high = packed_fields((codes >> 4).reshape(-1, 8, 32))
    low = packed_fields((codes & _FOUR_BITS).reshape(-1, 4, 2, 32)).reshape(-1, 128)
    return np.concatenate([head, high, low], axis=1)


def write_q6_k(values: Array, importance: Array | None) -> Array:
    x, count = side_by_side(values), len(values)
    weights = x * x if importance is None else side_by_side(importance)
    codes, scales = search.search_symmetric(x, weights, 16, 32)
    most = search.extreme(scales)
    nothing = np.abs(most) < _SMALLEST
    inverse = np.float32(-128) / most
    d = np.where(nothing, np.float32(0), search.rounded_to_f16(np.float32(1) / inverse))
    steps = np.where(nothing, 0, np.minimum(search.nearest(inverse * scales), 127)).astype("|i1")
    search.round_again(codes, x, d * steps.astype("<f4"), None, -32, 31)
    of_blocks = apart(np.where(nothing, np.uint8(0), codes), count)
    low = packed_fields((of_blocks & _FOUR_BITS).reshape(-1, 2, 2, 64)).reshape(-1, 128)
    high = packed_fields((of_blocks >> 4).reshape(-1, 2, 4, 32)).reshape(-1, 64)
    return np.concatenate([low, high, apart(steps.view("|u1"), count), _heads(count, d)], axis=1)
