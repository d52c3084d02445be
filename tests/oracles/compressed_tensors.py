"""The arithmetic of compressed-tensors 0.20.0 on what shares a scale, in exact fractions.

A step on tensors of dtype W is an operation in f32 whose result is rounded to W: two roundings. A weight is its sign
and its magnitude, so that -0 is a number of its own. Scales are positive; one beyond the range of W is infinite.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import inf

Number = Fraction | float
"""A fraction, or an infinity."""

Weight = tuple[bool, Fraction]
"""Whether it is negative, and its magnitude."""


@dataclass(frozen=True)
class Dtype:
    """A binary float by its significant bits and the exponents of its normal numbers."""

    precision: int
    lowest: int
    highest: int

    def nearest(self, x: Number) -> Number:
        """RNE; from half a place beyond the largest on, an infinity."""
        if isinstance(x, float) or x == 0:
            return x
        magnitude = abs(x)
        place = Fraction(2) ** (max(floor_log2(magnitude), self.lowest) - self.precision + 1)
        rounded: Number = round(magnitude / place) * place
        if rounded >= Fraction(2) ** (self.highest + 1):
            rounded = inf
        return rounded if x > 0 else -rounded

    @property
    def epsilon(self) -> Fraction:
        return Fraction(2) ** (1 - self.precision)

    @property
    def smallest_normal(self) -> Fraction:
        return Fraction(2) ** self.lowest


F32 = Dtype(24, -126, 127)
DTYPES = {"F32": F32, "BF16": Dtype(8, -126, 127), "F16": Dtype(11, -14, 15)}


def step(x: Number, dtype: Dtype) -> Number:
    """What is left of the exact result of an operation."""
    return dtype.nearest(F32.nearest(x))


def signed(weight: Weight) -> Fraction:
    negative, magnitude = weight
    return -magnitude if negative else magnitude


def clamped(x: Number, lowest: Fraction, highest: Fraction) -> Fraction:
    return Fraction(max(lowest, min(highest, x)))


# Integers.


def symmetric_scale(weights: list[Weight], half_range: Fraction, dtype: Dtype) -> Number:
    scale = step(max(magnitude for _, magnitude in weights) / half_range, dtype)
    return scale or dtype.epsilon


def asymmetric_scale(weights: list[Weight], bits: int, dtype: Dtype) -> tuple[Number, int]:
    low, high = Fraction(-(2 ** (bits - 1))), Fraction(2 ** (bits - 1) - 1)
    smallest = min(Fraction(0), *map(signed, weights))
    largest = max(Fraction(0), *map(signed, weights))
    distance = step(largest - smallest, dtype)
    scale = distance if isinstance(distance, float) else step(distance / (high - low), dtype)
    if scale == 0:
        # x / 0: an infinity, or no number where x is 0 too.
        return dtype.epsilon, int(high) if smallest < 0 else 0
    shift = divided(smallest, scale, dtype)
    return scale, round(clamped(step(low - Fraction(shift), dtype), low, high))


def divided(x: Fraction, scale: Number, dtype: Dtype) -> Number:
    return Fraction(0) if scale == inf else step(x / Fraction(scale), dtype)


def integer_codes(
    weights: list[Weight], scale: Number, zero_point: int, bits: int, dtype: Dtype, rounds: bool
) -> list[int]:
    within = dtype if rounds else F32
    low, high = Fraction(-(2 ** (bits - 1))), Fraction(2 ** (bits - 1) - 1)
    quotients = [divided(signed(each), scale, within) for each in weights]
    return [round(clamped(step(each + zero_point, within), low, high)) for each in quotients]


def integer_value(code: int, zero_point: int, scale: Fraction, dtype: Dtype) -> Number:
    difference = step(Fraction(code - zero_point), dtype)
    return step(Fraction(difference) * scale, dtype)


def packed(codes: list[int], bits: int) -> bytes:
    """Unsigned codes as the bytes of whole words."""
    whole = sum(code << (bits * place) for place, code in enumerate(codes))
    return whole.to_bytes(-(-len(codes) * bits // 32) * 4, "little")


# Small floats.


def magnitudes(exponent_bits: int, mantissa_bits: int, count: int) -> list[Fraction]:
    """The values of the first codes of a float without a sign."""
    bias = 2 ** (exponent_bits - 1) - 1
    found = []
    for code in range(count):
        exponent, mantissa = divmod(code, 2**mantissa_bits)
        significand = Fraction(mantissa, 2**mantissa_bits) + (exponent > 0)
        found.append(significand * Fraction(2) ** (max(exponent, 1) - bias))
    return found


E4M3 = magnitudes(4, 3, 0x7F)
E2M1 = magnitudes(2, 1, 8)
E2M3 = magnitudes(2, 3, 32)


def nearest_code(magnitude: Fraction, values: list[Fraction]) -> int:
    """The nearest value's, of two the even one; the last for all beyond it."""
    above = min(bisect_left(values, magnitude), len(values) - 1)
    return min(max(above - 1, 0), above, key=lambda code: (abs(values[code] - magnitude), code % 2))


@cache
def e4m3_code(weight: Weight, scale: Number, dtype: Dtype, rounds: bool) -> int:
    """The sign of the weight stays, also that of a zero."""
    quotient = divided(signed(weight), scale, dtype if rounds else F32)
    return nearest_code(abs(Fraction(quotient)), E4M3) | (0x80 if weight[0] else 0)


@cache
def e2m1_code(weight: Weight, scale: Number, dtype: Dtype, rounds: bool) -> int:
    """The sign is that of the quotient: that of a zero is not kept."""
    quotient = Fraction(divided(signed(weight), scale, dtype if rounds else F32))
    return nearest_code(abs(quotient), E2M1) | (8 if quotient < 0 else 0)


@cache
def e2m3_code(weight: Weight, scale: Number, dtype: Dtype, rounds: bool) -> int:
    """The sign of the weight stays; on a GPU, which does not round, not that of a zero."""
    quotient = Fraction(divided(signed(weight), scale, dtype if rounds else F32))
    return nearest_code(abs(quotient), E2M3) | (0x20 if weight[0] and (rounds or quotient) else 0)


def mx_scale(weights: list[Weight], bits: int, dtype: Dtype) -> tuple[Number, int]:
    """The scale, and the byte that is stored."""
    largest = max(magnitude for _, magnitude in weights)
    # As much is added as the most significant bit of the mantissa that the element does not have.
    added = Fraction(1, 16 if bits == 6 else 4)
    if largest >= dtype.smallest_normal:
        exponent = floor_log2(largest)
        if largest >= (2 - added) * Fraction(2) ** exponent:
            exponent += 1
    elif largest >= (1 - added) * dtype.smallest_normal:
        exponent = dtype.lowest
    else:
        # What has no exponent is nothing.
        exponent = None
    if exponent is None:
        field = 0
    elif exponent > dtype.highest:
        field = 255
    else:
        field = min(max(exponent + 127 - (8 if bits == 8 else 2), 0), 255)
    scale = dtype.nearest(Fraction(2) ** (field - 127)) if field < 255 else inf
    if scale == inf:
        return inf, 127
    return (scale, field) if scale else (Fraction(1), 127)


def floor_log2(x: Fraction) -> int:
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= x else exponent - 1


def global_scale(largest: Fraction, dtype: Dtype) -> Fraction:
    reciprocal = step(1 / max(largest, dtype.smallest_normal), dtype)
    if isinstance(reciprocal, float):
        return Fraction(1)
    scale = step(reciprocal * 448 * 6, dtype)
    return Fraction(1) if isinstance(scale, float) else scale


def nvfp4_scale(weights: list[Weight], whole: Fraction, dtype: Dtype) -> tuple[int, Fraction]:
    """The code of the scale, and what weights are divided by."""
    ideal = Fraction(step(max(magnitude for _, magnitude in weights) / 6, dtype))
    code = nearest_code(min(Fraction(F32.nearest(whole * ideal)), Fraction(448)), E4M3)
    if code == 0:
        code = E4M3.index(Fraction(1, 8))
    return code, Fraction(F32.nearest(E4M3[code] / whole))


def scaled(value: Fraction, scale: Fraction, dtype: Dtype) -> Number:
    return step(value * scale, dtype)
