"""LiteRT's arithmetic on doubles by their bits, for processors without floats; with all of its quirks.

A number is a fraction, of [2^30, 2^31] in magnitude, and a shift: fraction * 2^(shift - 31).
Computed in Python's exact integers, one number at a time. Source: LiteRT quantization_util.cc.
"""

from __future__ import annotations

import math
import struct

INFINITE_SHIFT = (1 << 31) - 1
"""The shift of infinities and of NaN."""

_INT64_MAX = (1 << 63) - 1


def _bits(value: float) -> int:
    pattern: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return pattern


def integer_frexp(value: float) -> tuple[int, int]:
    """IntegerFrExp: (fraction, shift), ties of the fraction's rounding toward zero.

    fraction = 2^30 + (mantissa >> 22), plus 1 where the lower 22 bits exceed 2^21; shift = exponent field - 1022.
    The fraction can be 2^31. A subnormal is read as if it had the hidden one. NaN is (0, INFINITE_SHIFT) where one of
    the upper 30 bits of its mantissa is set; infinities, and other NaN, have a fraction of the largest int64 or the
    smallest.
    """
    bits = _bits(value)
    exponent, mantissa = bits >> 52 & 0x7FF, bits & ((1 << 52) - 1)
    negative = bits >> 63
    if exponent == 0 and mantissa == 0:
        return 0, 0
    if exponent == 0x7FF:
        if mantissa >> 22:
            return 0, INFINITE_SHIFT
        return (-_INT64_MAX - 1 if negative else _INT64_MAX), INFINITE_SHIFT
    fraction = (1 << 30) + (mantissa >> 22) + (mantissa & ((1 << 22) - 1) > 1 << 21)
    return (-fraction if negative else fraction), exponent - 1022


def double_from_fraction_and_shift(fraction: int, shift: int) -> float:
    """DoubleFromFractionAndShift: the inverse, truncating.

    Its quirk: |fraction| = 2^31 sets the exponent's lowest bit instead of adding to the exponent, so that
    (2^31, 1) is 1.0 and not 2.0.
    """
    if shift == INFINITE_SHIFT:
        return math.nan if fraction == 0 else math.copysign(math.inf, fraction)
    if fraction == 0:
        return 0.0
    magnitude, exponent = abs(fraction), shift - 1
    while magnitude < 1 << 30:
        magnitude, exponent = magnitude * 2, exponent - 1
    while magnitude > 1 << 31:
        magnitude, exponent = magnitude // 2, exponent + 1
    exponent = -1023 if exponent < -1022 else min(exponent, 1023)
    bits = (exponent + 1023) << 52 | (magnitude - (1 << 30)) << 22 | (fraction < 0) << 63
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value


def integer_double_multiply(a: float, b: float) -> float:
    """IntegerDoubleMultiply: the product of the fractions, shifted right by 32; NaN if either is not finite."""
    (fraction_a, shift_a), (fraction_b, shift_b) = integer_frexp(a), integer_frexp(b)
    if INFINITE_SHIFT in (shift_a, shift_b):
        return math.nan
    return double_from_fraction_and_shift(fraction_a * fraction_b >> 32, shift_a + shift_b + 1)


def integer_double_compare(a: float, b: float) -> int:
    """IntegerDoubleCompare: -1, 0 or 1; 1 if either is not finite.

    Zero against a negative number is decided first, then the shifts, then the fractions: two negative numbers of
    different shift come out the wrong way round.
    """
    (fraction_a, shift_a), (fraction_b, shift_b) = integer_frexp(a), integer_frexp(b)
    if INFINITE_SHIFT in (shift_a, shift_b):
        return 1
    if fraction_a == 0 and fraction_b < 0:
        return 1
    if fraction_a < 0 and fraction_b == 0:
        return -1
    if shift_a != shift_b:
        return -1 if shift_a < shift_b else 1
    return (fraction_a > fraction_b) - (fraction_a < fraction_b)
