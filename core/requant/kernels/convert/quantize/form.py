"""The forms of `requant.kernels.convert.quantize.native`: their formulas, sixteen elements at once, and the numbers
they are told.

    v = x / s  or  fma(x, r, fma(x, c, a))       one rounding to f32 each
    t = RNE(v) + z  or  RNE(v + z)  or  RNA(v) + z

Reciprocals. x / s is the same as fma(x, r, x * c), r = RN(1 / s), c = RN(1 / s - r), for all but a few x, and
`requant.kernels.scalar.reciprocal` proves for a scale that none of these matters. A product with the reciprocal alone,
as some systems have it, is the case c = 0; with the zero point added in the same rounding, a = z.

Subnormal x are taken for zero when the scales are such that both give the same: |x / s| far below 1/2.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from requant.kernels.jit.jit import Array, Number, device
from requant.kernels.simd.memory import load
from requant.kernels.simd.rounding import nearest_integers
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import (
    convert,
    count,
    half_away,
    larger,
    magnitude,
    multiply_add,
    select,
    smaller,
    splat,
)
from requant.kernels.simd.widen import widened
from requant.kernels.simd.words import words_of

_INFINITY = np.float32(np.inf)
# Beyond all bounds of bytes, whatever their zero point, and beyond WORDS_HOLD.
_BEYOND_BYTES = np.float32(20000.0)

WORDS_HOLD = 1 << 14
"""Words are what the integers are as long as they are this small; all zero points of bytes are far below."""

WINDOW = {8: 1 << 21, 16: 1 << 21, 32: 1 << 50}
"""By the bits of the target: integers of at least this magnitude are outside of the window."""


class Form(NamedTuple):
    """Which of the formulas above. `source` is f32, f16 or bf16; `bits` those of the target's elements."""

    multiplied: bool
    before: bool
    away: bool = False
    source: str = "f32"
    bits: int = 8


class Field(IntEnum):
    """Where each number stands in the kernels' `numbers`, after those of `requant.kernels.loop.layout.unpacked`."""

    PARAMETERS = 5
    """How many there are."""
    FLUSHING = 6
    """Whether subnormals may be taken for zero."""
    SATURATING = 7
    """Whether all that is too large saturates, and NaN is stored."""
    WORDS_SUFFICE = 8
    """Whether it also stores NaN within the bounds, so that words can hold whatever there is."""
    MINIMUM = 9
    MAXIMUM = 10
    LOWEST = 11
    """Of the window."""
    HIGHEST = 12


@device
def quotient(x: Number, parameter: tuple[Number, ...], multiplied: bool, before: bool, away: bool) -> Number:
    """v, or v + z: what is rounded to the nearest integer. A parameter is s or r, c, a and z; all are vectors."""
    factor, correction, addend, zero = parameter
    value = multiply_add(x, factor, multiply_add(x, correction, addend)) if multiplied else x / factor
    if before:
        value = value + convert(zero, np.float32)
    return half_away(value) if away else value


@device
def nearest(
    source: Array, i: Number, parameter: tuple[Number, ...], multiplied: bool, before: bool, away: bool
) -> Number:
    """t of sixteen elements, z not yet added if it is added to integers."""
    return nearest_integers(quotient(widened(load(source, i)), parameter, multiplied, before, away))


@device
def two_nearest(
    source: Array, i: Number, parameter: tuple[Number, ...], multiplied: bool, before: bool, away: bool
) -> Number:
    """The same of thirty-two, as words."""
    return words_of(
        nearest(source, i, parameter, multiplied, before, away),
        nearest(source, i + LANES, parameter, multiplied, before, away),
    )


@device
def finished(value: Number, x: Number, factor: Number, multiplied: bool) -> Number:
    """v where it is infinite too: an infinity times a correction of 0 would be NaN."""
    if not multiplied:
        return value
    product = x * factor
    return select(magnitude(product) < splat(_INFINITY), value, product)


@device
def two_of_any(
    source: Array,
    i: Number,
    parameter: tuple[Number, ...],
    nan: Number,
    multiplied: bool,
    before: bool,
    away: bool,
) -> tuple[Number, Number]:
    """two_nearest of whatever there is, as far as bytes that saturate tell; and how many are NaN, stored as `nan`."""
    missing = np.int64(0)
    x = widened(load(source, i))
    value = finished(quotient(x, parameter, multiplied, before, away), x, parameter[0], multiplied)
    number = value == value
    missing += LANES - count(number)
    limit = splat(_BEYOND_BYTES)
    first = select(number, nearest_integers(smaller(larger(value, -limit), limit)), nan)
    x = widened(load(source, i + LANES))
    value = finished(quotient(x, parameter, multiplied, before, away), x, parameter[0], multiplied)
    number = value == value
    missing += LANES - count(number)
    second = select(number, nearest_integers(smaller(larger(value, -limit), limit)), nan)
    return words_of(first, second), missing


@device
def with_zero(integers: Number, zero: Number, before: bool) -> Number:
    """t of what was rounded."""
    return integers if before else integers + zero
