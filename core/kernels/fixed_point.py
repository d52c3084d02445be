"""Fixed-point primitives on integers, named as the field names them.

All take and return int64 and are exact as long as the stated ranges hold. `>>` is the arithmetic shift (floor).
"""

from __future__ import annotations

from core.kernels._jit import device

INT32_MAX = 2147483647


@device
def saturating_rounding_doubling_high_multiply(a: int, b: int) -> int:
    """floor((a*b + 2^30) / 2^31), and 2^31 - 1 where that is 2^31 (a = b = -2^31). a, b: int32 values.

    Equal to gemmlowp's SaturatingRoundingDoublingHighMul, whose sign-dependent nudge and truncating division round
    halves up just the same, and to ARM's SQRDMULH (spec/numerics.md C.4).
    """
    return min((a * b + 1073741824) >> 31, INT32_MAX)


@device
def rounding_divide_by_power_of_two(value: int, exponent: int) -> int:
    """RNA(value / 2^exponent): nearest, ties away from zero. 0 <= exponent <= 31; value: an int32 value.

    For a negative value one less than half is added, so that the floor of the shift takes a tie away from zero.
    Equal to gemmlowp's RoundingDivideByPOT (spec/numerics.md C.4).
    """
    half = (1 << exponent) >> 1
    return (value + half + ((value >> 63) & -(exponent > 0))) >> exponent


@device
def wrap_int32(value: int) -> int:
    """value mod 2^32, taken in [-2^31, 2^31)."""
    return ((value + 2147483648) & 4294967295) - 2147483648


@device
def multiply_double_rounding(value: int, multiplier: int, left: int, right: int) -> int:
    """RDBPOT(SRDHM(wrap32(value * 2^left), multiplier), right): the multiplication with two roundings.

    LiteRT's MultiplyByQuantizedMultiplier as every wheel has it (spec/numerics.md C.5), and TOSA's DOUBLE_ROUND where
    value fits the bounds that TOSA requires (D.5). `left` = max(shift, 0), `right` = max(-shift, 0), 0..31.
    """
    product = saturating_rounding_doubling_high_multiply(wrap_int32(value << left), multiplier)
    return rounding_divide_by_power_of_two(product, right)


@device
def multiply_single_rounding(value: int, multiplier: int, shift: int) -> int:
    """floor((value*multiplier + 2^(shift-1)) / 2^shift): one rounding, ties toward plus infinity. 1 <= shift <= 62.

    LiteRT built with TFLITE_SINGLE_ROUNDING, and TOSA's SINGLE_ROUND. value: an int32, 0 <= multiplier < 2^31.
    """
    return (value * multiplier + (1 << (shift - 1))) >> shift
