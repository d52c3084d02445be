"""Fixed-point primitives on integers, named as the field names them.

All take and return int64 and are exact as long as the stated ranges hold. `>>` is the arithmetic shift (floor). How
multipliers and shifts are found is not an array's business: `core.schemes`, in Python's exact integers.
"""

from __future__ import annotations

from core.kernels.jit.jit import device

INT32_MAX = 2147483647
INT16_MAX = 32767


@device
def saturating_rounding_doubling_high_multiply(a: int, b: int) -> int:
    """floor((a*b + 2^30) / 2^31), and 2^31 - 1 where that is 2^31 (a = b = -2^31). a, b: int32 values.

    Equal to gemmlowp's SaturatingRoundingDoublingHighMul, whose sign-dependent nudge and truncating division round
    halves up just the same, and to ARM's SQRDMULH (spec/numerics.md C.4).
    """
    return min((a * b + 1073741824) >> 31, INT32_MAX)


@device
def saturating_rounding_doubling_high_multiply_int16(a: int, b: int) -> int:
    """floor((a*b + 2^14) / 2^15), and 2^15 - 1 where that is 2^15 (a = b = -2^15). a, b: int16 values.

    The 16-bit form of the same (spec/numerics.md C.4).
    """
    return min((a * b + 16384) >> 15, INT16_MAX)


@device
def rounding_divide_by_power_of_two(value: int, exponent: int) -> int:
    """RNA(value / 2^exponent): nearest, ties away from zero. 0 <= exponent <= 31; value: an int32 value.

    For a negative value one less than half is added, so that the floor of the shift takes a tie away from zero.
    Equal to gemmlowp's RoundingDivideByPOT (spec/numerics.md C.4).
    """
    half = (1 << exponent) >> 1
    return (value + half + ((value >> 63) & -(exponent > 0))) >> exponent


@device
def rounding_shift_right(value: int, exponent: int) -> int:
    """RNU(value / 2^exponent) = floor((value + 2^(exponent-1)) / 2^exponent): nearest, ties toward plus infinity.

    0 <= exponent <= 62, as long as the sum fits int64. ARM's SRSHL by a negative shift (spec/numerics.md C.5).
    """
    return (value + ((1 << exponent) >> 1)) >> exponent


@device
def rounding_shift_away(value: int, exponent: int) -> int:
    """RNA(value / 2^exponent) for products: sign(value) * floor((|value| + 2^(exponent-1)) / 2^exponent).

    0 <= exponent <= 62, |value| + 2^(exponent-1) < 2^63. XNNPACK's rndna (spec/numerics.md D.4).
    """
    magnitude = rounding_shift_right(abs(value), exponent)
    return -magnitude if value < 0 else magnitude


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
def multiply_double_rounding_up(value: int, multiplier: int, left: int, right: int) -> int:
    """The same with a rounding shift right for the second rounding: ties toward plus infinity both times.

    LiteRT's vector kernels, SQRDMULH and then SRSHL (spec/numerics.md C.5).
    """
    product = saturating_rounding_doubling_high_multiply(wrap_int32(value << left), multiplier)
    return rounding_shift_right(product, right)


@device
def multiply_single_rounding(value: int, multiplier: int, shift: int, first: int) -> int:
    """floor((value*multiplier + 2^(shift-1) + first) / 2^shift), 0 <= shift <= 62: the sum has to fit int64.

    With `first` 0 one rounding, ties toward plus infinity: LiteRT built with TFLITE_SINGLE_ROUNDING and its int64
    accumulators with a 16-bit multiplier (spec/numerics.md C.5), XNNPACK's rndnu (D.4), FBGEMM (D.6), TOSA (D.5).
    `first` is where TOSA's DOUBLE_ROUND puts its other rounding.
    """
    return rounding_shift_right(value * multiplier + first, shift)


@device
def quantize_down_int32_to_uint8_scale(value: int, offset: int, multiplier: int, shift: int) -> int:
    """RDBPOT((value + offset) * multiplier, shift): the offset is added before scaling; 0 <= shift <= 31.

    gemmlowp's legacy output stage, whose product has to fit int32 (spec/numerics.md D.1).
    """
    return rounding_divide_by_power_of_two((value + offset) * multiplier, shift)
