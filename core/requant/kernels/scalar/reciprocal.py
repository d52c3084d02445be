"""Division by a constant as two multiplications, and the proof for a given constant that no result changes.

    q = fma(x, r, x * c)      r = RN(1 / s),  c = RN(1 / s - r)

r + c is 1 / s but for 2^-48 of it, and x * c is rounded once, so that what the last rounding sees is x / s but for a
relative error below 2^-47. It can then differ from RN(x / s) only where x / s is that close to the middle m between
two neighbouring f32. Write X and S for the 24-bit integer significands of x and s, M for the odd 25-bit integer of m,
and k = 24 if X >= S, else 25. Then X / S * 2^k = M + N / S with an integer N, not 0, and the distance of x / s from m
is the |N| / (X * 2^k)-th part of it. So |N| <= 2^-47 * X * 2^k <= 4, and

    M * S = -N  (mod 2^k)

which has few solutions. With S = 2^t * S' (S' odd) it demands that N = 2^t * N' with N' odd, and M is
-N' / S' modulo 2^(k - t), where odd numbers have inverses. So there are at most 12 x, but for their exponents, for
which q can differ; for t > 2 there are none.

These are tried. Where q does differ, by one unit in the last place, the integers that a quantizer makes of both are
compared, for each exponent that gives quotients of 2^-2 to 2^18 and both signs. Smaller quotients all give the zero
point, larger ones are beyond all bounds of 16 bits.

No step leaves the normal numbers when 2^-60 <= s <= 2^60, as long as x / s is in that range.
"""

from __future__ import annotations

import numpy as np

from requant.kernels.jit.jit import Number, device, kernel
from requant.kernels.jit.signature import F32, Bool, In, Out
from requant.kernels.scalar.rounding import bits_of_f32, fused_multiply_add, round_half_away, round_half_even

_SMALLEST = np.float32(2.0**-60)
_LARGEST = np.float32(2.0**60)
_MIN_BITS = 23
_EXPONENT_OF_A_QUARTER = 125
_EXPONENTS = 20


@device
def _inverse(odd: Number) -> Number:
    """The inverse of an odd number modulo 2^64, by Newton's iteration: three bits are right, and twice as many each."""
    inverse = odd
    for _ in range(5):
        inverse *= np.uint64(2) - odd * inverse
    return inverse


@device
def _integer(quotient: Number, zero: Number, before: Number, away: Number) -> Number:
    if away:
        return round_half_away(quotient)
    return round_half_even(quotient + zero) if before else round_half_even(quotient)


@device
def _agrees(
    x: Number, scale: Number, reciprocal: Number, correction: Number, zero: Number, before: Number, away: Number
) -> Number:
    """Whether the integers agree for the significand of x: at every exponent, with both signs."""
    if fused_multiply_add(x, reciprocal, x * correction) == x / scale:
        return True
    exponent = np.int32(np.int32(bits_of_f32(x / scale) >> _MIN_BITS) - _EXPONENT_OF_A_QUARTER)
    for step in range(_EXPONENTS):
        # In f64, as the exponent on the way may be beyond those of f32.
        scaled = np.float32(np.float64(x) * 2.0 ** np.float64(step - exponent))
        for sign in range(2):
            value = -scaled if sign else scaled
            near = fused_multiply_add(value, reciprocal, value * correction)
            if _integer(near, zero, before, away) != _integer(value / scale, zero, before, away):
                return False
    return True


@kernel()
def reciprocals_agree(
    scales: In[F32],
    zero_points: In[F32],  # their zero points
    before: Bool,  # whether the zero point is added before the rounding
    away: Bool,  # whether ties go away from zero; then it is not
    reciprocals: Out[F32],
    corrections: Out[F32],
) -> Bool:
    """Write r and c of each scale. Return whether every f32 gives the same integer of 16 bits by both ways.

    Integers are RNE(q), or RNA(q), or RNE(q + z) with the sum rounded to f32.
    """
    for index in range(scales.size):
        scale = scales[index]
        if not (scale >= _SMALLEST) & (scale <= _LARGEST):
            return False
        reciprocal = np.float32(np.float32(1.0) / scale)
        # The product is exact in f64, and so is its distance from 1.
        correction = np.float32((1.0 - np.float64(scale) * np.float64(reciprocal)) / np.float64(scale))
        reciprocals[index] = reciprocal
        corrections[index] = correction
        significand = np.uint64((bits_of_f32(scale) & 0x7FFFFF) | 0x800000)
        zeros = np.uint64(0)
        while significand & np.uint64(1) == np.uint64(0):
            significand >>= np.uint64(1)
            zeros += np.uint64(1)
        if zeros > np.uint64(2):
            continue
        whole = significand << zeros
        inverse = _inverse(significand)
        for k in range(24, 26):
            # N runs over the multiples of 2^t up to 4 whose quotient is odd, with both signs.
            for part in range(1, (4 >> zeros) + 1, 2):
                for sign in range(2):
                    remainder = np.int64(-part if sign else part)
                    modulus = np.uint64(1) << np.uint64(k - zeros)
                    middle = (np.uint64(-remainder) * inverse) & (modulus - np.uint64(1))
                    while middle < np.uint64(1 << 25):
                        if middle >= np.uint64(1 << 24):
                            product = np.int64(middle * whole) + (remainder << np.int64(zeros))
                            x = product >> np.int64(k)
                            fits = (x >= 1 << 23) & (x < 1 << 24) & ((x >= np.int64(whole)) == (k == 24))
                            if fits and not _agrees(
                                np.float32(x), scale, reciprocal, correction, zero_points[index], before, away
                            ):
                                return False
                        middle += modulus
    return True
