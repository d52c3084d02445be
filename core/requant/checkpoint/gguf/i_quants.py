"""GGUF's I-quants: codes of quantiles, and codes of whole vectors of a grid. Source: ggml 0.25's ggml-quants.c.

IQ4_NL and IQ4_XS: value = s * QUANTILES[code], s the scale of 32 elements, of which j lies below j + 16.

- IQ4_NL, 18 bytes for 32 elements: d, 16 bytes of codes; s = d.
- IQ4_XS, 136 bytes for 256: d, the upper two bits of eight scales (u16, the first one lowest), their lower four bits in
  4 bytes, 128 bytes of codes; s = d * (scale - 32).

The others have 256 elements. A number of some bits is the place of a vector in a grid (i_quant_grids.txt), which has
the magnitudes of 8 elements, of IQ3 those of 4. Each has a sign. Where there are 7 bits for 8 signs, they are those of
the first seven, and the number of minuses is even. d is an f16, s has 4 bits, of IQ1 3 bits. Steps are rounded to f32
in the order that is written.

| type    | bytes | fields in their order                                                 | scale; elements          |
|---------|-------|-----------------------------------------------------------------------|--------------------------|
| IQ2_XXS | 66    | d; for 32 elements: 4 places of 8 bits, u32: 4 * 7 signs, s           | d * (0.5 + s) * 0.25; 32 |
| IQ2_XS  | 74    | d; u16 for 8 elements: 9 bits place, 7 signs; scales s                | d * (0.5 + s) * 0.25; 16 |
| IQ2_S   | 82    | d; places: lower 8 bits 32; signs 32; upper 2 bits 8; scales s        | d * (0.5 + s) * 0.25; 16 |
| IQ3_XXS | 98    | d; places of 8 bits 64; u32 for 32 elements: 4 * 7 signs, s           | d * (0.5 + s) * 0.5; 32  |
| IQ3_S   | 110   | d; places: lower 8 bits 64; upper bits 8; signs 32; scales s          | d * (1 + 2 s); 32        |
| IQ1_S   | 50    | d; places: lower 8 bits 32; u16 for 32: 4 * 3 upper bits, s, bit      | d * (2 s + 1); 32        |
| IQ1_M   | 56    | places: lower 8 bits 32; 3 upper bits and a bit for 8, two to a byte; | d * (2 s + 1); 16        |
|         |       | four u16 of four scales of 3 bits, and 4 bits of d                    |                          |

IQ1 has the numbers -1, 0 and 1 for magnitudes and signs, and adds 1/8 to all eight or, where the bit is set, takes it
off.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.gguf import quant_search as search
from requant.checkpoint.gguf.blocks import (
    Unpacked,
    apart,
    f16_at,
    fields,
    packed_fields,
    side_by_side,
    stored_f16,
)
from requant.plan.float_arrays import f32_of_f16

Array = NDArray[Any]

QUANTILES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], "|i1")
"""Of IQ4_NL and IQ4_XS, by their codes."""

_ELEMENTS = 256
_QUANTILES = QUANTILES.astype("<f4")
_MIDPOINTS = (_QUANTILES[:-1] + _QUANTILES[1:]) / np.float32(2)
_GRIDS = Path(__file__).with_name("i_quant_grids.txt")
_HALF, _QUARTER, _EIGHTH, _ONE, _TWO = (np.float32(x) for x in (0.5, 0.25, 0.125, 1, 2))


@cache
def grid(name: str) -> Array:
    """Return the vectors of a type's grid: int8 [places, 8 or 4]."""
    return dict(_read_grids())[name]


def _read_grids() -> Iterator[tuple[str, Array]]:
    lines = (line for line in _GRIDS.read_text(encoding="ascii").splitlines() if not line.startswith("#"))
    for paragraph in "\n".join(lines).strip().split("\n\n"):
        head, *encoded = paragraph.split("\n")
        name, width, *numbers = head.split()
        packed = np.frombuffer(base64.b64decode("".join(encoded)), "|u1").reshape(-1, 1)
        digits = fields(packed, 2 if len(numbers) <= 4 else 4).reshape(-1, int(width))
        vectors = np.array(numbers, "|i1")[digits]
        vectors.setflags(write=False)
        yield name, vectors


def _parity_signs() -> Array:
    seven = np.arange(128, dtype="|u1")
    odd = np.bitwise_count(seven) & np.uint8(1)
    signs: Array = seven | odd << 7
    return signs


_SIGNS_OF_SEVEN = _parity_signs()


def _signed(vectors: Array, signs: Array) -> Array:
    """Return codes [blocks, 256]: the magnitudes with the signs of bytes [blocks, 32], whose set bits are minuses."""
    minus = np.unpackbits(np.ascontiguousarray(signs), axis=1, bitorder="little").view("|i1")
    # x ^ -1 is -x - 1.
    codes: Array = (vectors.reshape(-1, _ELEMENTS) ^ -minus) + minus
    return codes


def _words(blocks: Array, begin: int, end: int, dtype: str) -> Array:
    return np.ascontiguousarray(blocks[:, begin:end]).view(dtype)


def _seven_signs(words: Array) -> Array:
    """Of u32 with four times seven bits, their 32 bytes of signs."""
    fours = words[:, :, None] >> np.arange(0, 28, 7, dtype="<u4")
    signs: Array = _SIGNS_OF_SEVEN[fours & np.uint32(127)]
    return signs.reshape(-1, 32)


def _nibbles(packed: Array) -> Array:
    """The halves of bytes, the lower one first."""
    return fields(packed[:, :, None], 4).reshape(-1, 2 * packed.shape[1])


def _scales(heads: Array, steps: Array, offset: np.float32, slope: np.float32, factor: np.float32) -> Array:
    with np.errstate(invalid="ignore"):
        scales: Array = heads * (offset + slope * steps.astype("<f4")) * factor
    return scales


def unpack_iq4_nl(blocks: Array) -> Unpacked:
    heads = f16_at(blocks, 0)
    return Unpacked(QUANTILES[fields(blocks[:, 2:], 4).reshape(-1, 32)], heads, heads)


def unpack_iq4_xs(blocks: Array) -> Unpacked:
    heads = f16_at(blocks, 0)
    upper = _words(blocks, 2, 4, "<u2") >> np.arange(0, 16, 2, dtype="<u2") & np.uint16(3)
    steps = (_nibbles(blocks[:, 4:8]) | upper.astype("|u1") << 4).astype("<f4") - np.float32(32)
    codes = fields(blocks[:, 8:].reshape(-1, 8, 16), 4)
    with np.errstate(invalid="ignore"):
        return Unpacked(QUANTILES[codes.reshape(-1, _ELEMENTS)], heads * steps, heads)


def unpack_iq2_xxs(blocks: Array) -> Unpacked:
    heads, parts = f16_at(blocks, 0), blocks[:, 2:].reshape(-1, 8, 8)
    words = np.ascontiguousarray(parts[:, :, 4:]).view("<u4")[:, :, 0]
    codes = _signed(grid("IQ2_XXS")[parts[:, :, :4]], _seven_signs(words))
    return Unpacked(codes, _scales(heads, words >> 28, _HALF, _ONE, _QUARTER), heads)


def unpack_iq2_xs(blocks: Array) -> Unpacked:
    heads, words = f16_at(blocks, 0), _words(blocks, 2, 66, "<u2")
    codes = _signed(grid("IQ2_XS")[words & 511], _SIGNS_OF_SEVEN[words >> 9])
    return Unpacked(codes, _scales(heads, _nibbles(blocks[:, 66:]), _HALF, _ONE, _QUARTER), heads)


def unpack_iq2_s(blocks: Array) -> Unpacked:
    heads = f16_at(blocks, 0)
    upper = fields(blocks[:, 66:74, None], 2).reshape(-1, 32)
    places = blocks[:, 2:34] | upper.astype("<u2") << 8
    codes = _signed(grid("IQ2_S")[places], blocks[:, 34:66])
    return Unpacked(codes, _scales(heads, _nibbles(blocks[:, 74:]), _HALF, _ONE, _QUARTER), heads)


def unpack_iq3_xxs(blocks: Array) -> Unpacked:
    heads, words = f16_at(blocks, 0), _words(blocks, 66, 98, "<u4")
    codes = _signed(grid("IQ3_XXS")[blocks[:, 2:66]], _seven_signs(words))
    return Unpacked(codes, _scales(heads, words >> 28, _HALF, _ONE, _HALF), heads)


def unpack_iq3_s(blocks: Array) -> Unpacked:
    heads = f16_at(blocks, 0)
    upper = np.unpackbits(blocks[:, 66:74], axis=1, bitorder="little")
    places = blocks[:, 2:66] | upper.astype("<u2") << 8
    codes = _signed(grid("IQ3_S")[places], blocks[:, 74:106])
    return Unpacked(codes, _scales(heads, _nibbles(blocks[:, 106:]), _ONE, _TWO, _ONE), heads)


def _unpacked_iq1(places: Array, shifts: Array, heads: Array, steps: Array) -> Unpacked:
    """Codes count eighths, as all their values do; the scale is divided by 8, which is exact."""
    eighths = grid("IQ1_S")[places] << 3
    codes = eighths + (np.int8(1) - 2 * shifts.astype("|i1"))[:, :, None]
    return Unpacked(codes.reshape(-1, _ELEMENTS), _scales(heads, steps, _ONE, _TWO, _EIGHTH), heads)


def unpack_iq1_s(blocks: Array) -> Unpacked:
    words = _words(blocks, 34, 50, "<u2")
    upper = words[:, :, None] >> np.arange(0, 12, 3, dtype="<u2") & np.uint16(7)
    places = blocks[:, 2:34] | upper.reshape(-1, 32) << 8
    shifts = np.repeat(words >> 15, 4, axis=1)
    return _unpacked_iq1(places, shifts, f16_at(blocks, 0), words >> 12 & np.uint16(7))


def unpack_iq1_m(blocks: Array) -> Unpacked:
    upper, words = _nibbles(blocks[:, 32:48]), _words(blocks, 48, 56, "<u2")
    places = blocks[:, :32] | (upper & np.uint8(7)).astype("<u2") << 8
    quarters = words >> 12 << np.arange(0, 16, 4, dtype="<u2")
    heads = f32_of_f16(np.bitwise_or.reduce(quarters, axis=1).astype("<u2").view("<f2"))[:, None]
    steps = words[:, :, None] >> np.arange(0, 12, 3, dtype="<u2") & np.uint16(7)
    return _unpacked_iq1(places, upper >> 3, heads, steps.reshape(-1, 16))


def _searched(values: Array, importance: Array | None) -> tuple[Array, Array]:
    """Return x side by side, and the scales of groups of 32. The weights are a * sqrt(2 v + x^2) or x^2, v the mean of
    x^2 in a block and a the importance."""
    x = side_by_side(values)
    weights = x * x if importance is None else search.important(x, side_by_side(importance), 2)
    return x, search.search_quantiles(x, weights, 32, _MIDPOINTS, _QUANTILES)


def write_iq4_nl(values: Array, importance: Array | None) -> Array:
    """Return the bytes of blocks [n, 32]. `importance`: of each element, or None. Raises PreconditionError where d is
    beyond f16."""
    x, scales = _searched(values, importance)
    codes = apart(search.quantile_codes(x, _reciprocals(scales), _MIDPOINTS), len(values))
    heads = stored_f16(apart(scales, len(values))[:, 0], 32).reshape(-1, 1).view("|u1")
    return np.concatenate([heads, packed_fields(codes.reshape(-1, 2, 16))], axis=1)


def write_iq4_xs(values: Array, importance: Array | None) -> Array:
    """Return IQ4_XS blocks for rows [n, 256], searched as those of IQ4_NL are."""
    x, scales = _searched(values, importance)
    count = len(values)
    # Codes are those of d before it is rounded to f16.
    d = -search.extreme(scales) / np.float32(32)
    steps = np.clip(search.nearest(_reciprocals(d) * scales), -32, 31)
    codes = apart(search.quantile_codes(x, _reciprocals(d * steps.astype("<f4")), _MIDPOINTS), count)
    stored = apart((steps + 32).astype("|u1"), count)
    upper = packed_fields((stored >> 4).reshape(-1, 2, 4).transpose(0, 2, 1))
    lower = packed_fields((stored & np.uint8(15)).reshape(-1, 4, 2).transpose(0, 2, 1))
    heads = stored_f16(apart(d, count)[:, 0], _ELEMENTS).reshape(-1, 1).view("|u1")
    packed = packed_fields(codes.reshape(-1, 8, 2, 16)).reshape(-1, 128)
    return np.concatenate([heads, upper, lower, packed], axis=1)


def _reciprocals(numbers: Array) -> Array:
    return np.where(numbers != 0, np.float32(1) / numbers, np.float32(0))
