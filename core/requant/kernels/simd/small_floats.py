"""f32 as the codes of floats of at most 8 bits, sixteen at once."""

from __future__ import annotations

import numpy as np

from requant.kernels.jit.jit import Number, device
from requant.kernels.simd.vectors import bits_as, select, splat

_NAN = np.int32(0x7F)


@device
def nearest_codes(magnitude: Number, mantissa_bits: int, bias: int) -> Number:
    """The codes nearest (RNE) to the f32 with these bits, whose signs are clear, as if exponents never ended.

    As `requant.kernels.scalar.small_floats.nearest_code_of_f32`.
    """
    dropped = 23 - mantissa_bits
    odd = (magnitude >> splat(np.int32(dropped))) & splat(np.int32(1))
    rounded = (magnitude + (odd + splat(np.int32((1 << (dropped - 1)) - 1)))) >> splat(np.int32(dropped))
    normal = rounded - splat(np.int32((127 - bias) << mantissa_bits))
    shifter = splat(np.int32((128 - bias + dropped) << 23))
    subnormal = bits_as(bits_as(magnitude, np.float32) + bits_as(shifter, np.float32), np.int32) - shifter
    return select(magnitude >= splat(np.int32((128 - bias) << 23)), normal, subnormal)


@device
def codes_of_e4m3(value: Number) -> Number:
    """The codes of f8E4M3FN nearest to numbers from -448 to 448, with the sign of a zero. NaN gives 0x7F."""
    bits = bits_as(value, np.int32)
    code = nearest_codes(bits & splat(np.int32(0x7FFFFFFF)), 3, 7)
    signed = code | ((bits >> splat(np.int32(24))) & splat(np.int32(0x80)))
    return select(value == value, signed, splat(_NAN))


@device
def codes_of_e2m1(value: Number) -> Number:
    """The codes of f4E2M1FN nearest to numbers from -6 to 6, with the sign of what is below zero. NaN gives 0."""
    bits = bits_as(value, np.int32)
    code = nearest_codes(bits & splat(np.int32(0x7FFFFFFF)), 1, 1)
    nothing = splat(np.int32(0))
    signed = code | select(value < splat(np.float32(0)), splat(np.int32(8)), nothing)
    return select(value == value, signed, nothing)
