"""Fixed-point primitives on vectors of int64.

All are exact within the stated ranges, and wrap beyond them. `>>` is the arithmetic shift (floor). Multipliers and
shifts are derived in `requant.schemes`, in Python's exact integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from requant.kernels.jit.jit import Number, device, intrinsic
from requant.kernels.simd.vector import LANES, Generated, Vector
from requant.kernels.simd.vectors import (
    convert,
    select,
    smaller,
    splat,
    zero_like,
)

_INT32_MAX = np.int64(2147483647)
_ONE = np.int64(1)
_HALF = np.int64(1 << 30)


@device
def wrap_int32(value: Number) -> Number:
    """value mod 2^32, taken in [-2^31, 2^31)."""
    return convert(convert(value, np.int32), np.int64)


@device
def high_multiply(a: Number, b: Number) -> Number:
    """SaturatingRoundingDoublingHighMul: floor((a*b + 2^30) / 2^31), and 2^31 - 1 where that is 2^31 (a = b = -2^31).

    a, b: int32 values. Equal to gemmlowp's, whose sign-dependent nudge and truncating division round
    halves up just the same, and to ARM's SQRDMULH.
    """
    return smaller((a * b + splat(_HALF)) >> splat(np.int64(31)), splat(_INT32_MAX))


@device
def _half(exponent: Number) -> Number:
    """2^(exponent-1), and 0 for exponent 0."""
    return (splat(_ONE) << exponent) >> splat(_ONE)


@device
def rounding_divide_by_power_of_two(value: Number, exponent: Number) -> Number:
    """RNA(value / 2^exponent): nearest, ties away from zero. 0 <= exponent <= 31; value: an int32 value.

    For a negative value one less than half is added, so that the floor of the shift takes a tie away from zero.
    Equal to gemmlowp's RoundingDivideByPOT.
    """
    nudge = (value >> splat(np.int64(63))) & convert(exponent > zero_like(exponent), np.int64)
    return (value + _half(exponent) + nudge) >> exponent


@device
def rounding_shift_right(value: Number, exponent: Number) -> Number:
    """RNU(value / 2^exponent) = floor((value + 2^(exponent-1)) / 2^exponent): nearest, ties toward plus infinity.

    0 <= exponent <= 62, as long as the sum fits int64. ARM's SRSHL by a negative shift.
    """
    return (value + _half(exponent)) >> exponent


@device
def rounding_shift_away(value: Number, exponent: Number) -> Number:
    """RNA(value / 2^exponent) for products: sign(value) * floor((|value| + 2^(exponent-1)) / 2^exponent).

    0 <= exponent <= 62, |value| + 2^(exponent-1) < 2^63. XNNPACK's rndna.
    """
    negative = value < zero_like(value)
    magnitude = rounding_shift_right(select(negative, -value, value), exponent)
    return select(negative, -magnitude, magnitude)


@device
def rounding_shift_even(value: Number, exponent: Number) -> Number:
    """RNE(value / 2^exponent). 0 <= exponent <= 62, |value| + 2^(exponent-1) < 2^63. RISC-V's rne."""
    lost = (splat(_ONE) << exponent) - splat(_ONE)
    return (value + (lost >> splat(_ONE)) + ((value >> exponent) & lost & splat(_ONE))) >> exponent


@device
def rounding_shift_odd(value: Number, exponent: Number) -> Number:
    """floor(value / 2^exponent), the last bit set if the remainder is not 0. 0 <= exponent <= 62. RISC-V's rod."""
    lost = (splat(_ONE) << exponent) - splat(_ONE)
    return (value >> exponent) | convert((value & lost) != zero_like(value), np.int64) & splat(_ONE)


@device
def _doubled(value: Number, multiplier: Number, shift: Number) -> Number:
    left = splat(np.int64(31)) - shift
    return high_multiply(wrap_int32(value << select(left > zero_like(left), left, zero_like(left))), multiplier)


@device
def _right(shift: Number) -> Number:
    right = shift - splat(np.int64(31))
    return select(right > zero_like(right), right, zero_like(right))


@device
def multiply_double_rounding(value: Number, multiplier: Number, shift: Number) -> Number:
    """RDBPOT(SRDHM(wrap32(value * 2^max(31-shift, 0)), multiplier), max(shift-31, 0)): two roundings.

    LiteRT's MultiplyByQuantizedMultiplier as every wheel has it, and TOSA's DOUBLE_ROUND where
    value fits the bounds that TOSA requires.
    """
    return rounding_divide_by_power_of_two(_doubled(value, multiplier, shift), _right(shift))


@device
def multiply_double_rounding_up(value: Number, multiplier: Number, shift: Number) -> Number:
    """The same with a rounding shift right for the second rounding: ties toward plus infinity both times.

    LiteRT's vector kernels, SQRDMULH and then SRSHL.
    """
    return rounding_shift_right(_doubled(value, multiplier, shift), _right(shift))


@device
def multiply_tosa_double_rounding(value: Number, multiplier: Number, shift: Number) -> Number:
    """One rounding of the product, with 2^30 away from zero added to it first where shift > 31.

    2^30 is half of what the first of the two roundings takes off.
    """
    half = select(shift > splat(np.int64(31)), splat(_HALF), zero_like(value))
    nudge = select(value < zero_like(value), -half, half)
    return rounding_shift_right(value * multiplier + nudge, shift)


@intrinsic
def upper_product(typing_context: Any, value: Vector, multiplier: Vector, addend: Vector) -> Generated:
    """The upper 32 bits of value * multiplier + addend: two numbers of 32 bits without a sign, and one of 64.

    Every second element is multiplied at once, for that is what processors have: numbers of 32 bits in the lower halves
    of elements of 64.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        count = LANES // 2
        words, halves = ir.VectorType(ir.IntType(64), count), ir.VectorType(ir.IntType(32), LANES)
        lower = ir.Constant(words, [0xFFFFFFFF] * count)
        upper = ir.Constant(words, [32] * count)
        pairs = [builder.bitcast(each, words) for each in arguments[:2]]
        products = []
        for odd in (0, 1):
            a, b = (builder.lshr(pair, upper) if odd else builder.and_(pair, lower) for pair in pairs)
            places = ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(odd, LANES, 2)))
            added = builder.shuffle_vector(arguments[2], arguments[2], places)
            products.append(builder.bitcast(builder.add(builder.mul(a, b, flags=("nuw",)), added), halves))
        # The upper half of an element is the second one, on every processor that numba compiles for.
        order = [place + 1 + odd * LANES for place in range(0, LANES, 2) for odd in (0, 1)]
        return builder.shuffle_vector(*products, ir.Constant(halves, order))

    return Vector(types.int32)(value, multiplier, addend), generate
