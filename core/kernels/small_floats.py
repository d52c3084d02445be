"""Kernels between f32 or f64 and floats of at most 16 bits, for every format by its numbers. Formulas: numerics.md G.

    normal:    code = RNE(bits / 2^(p - m)) - ((source bias - bias) << m)
    subnormal: code = bits(|x| + M) - bits(M), M the power of two whose last place is the format's smallest value

m is the number of mantissa bits of the format, p that of the source. The first is done in integers, where a carry moves
to the next exponent by itself. What is written for overflow, infinities and NaN is handed in as codes, so one loop
serves every authority.
"""

from __future__ import annotations

import numpy as np
from numba import types

from core.kernels._jit import Array, Kernel, Number, device, kernel, readable, writable
from core.kernels.rounding import bits_of_f32, bits_of_f64, f32_of_bits, f64_of_bits, round_f32_to_f16

_F32_MAGNITUDE = 0x7FFFFFFF
_F32_INFINITY = 0x7F800000
_F64_MAGNITUDE = 0x7FFFFFFFFFFFFFFF
_F64_INFINITY = 0x7FF0000000000000


@device
def nearest_code_of_f32(magnitude: Number, mantissa_bits: Number, bias: Number) -> Number:
    """The code (RNE) nearest to the f32 with the bits `magnitude` (sign clear, not NaN), as if exponents never ended.

    The caller compares it with the format's largest code: beyond that it is an overflow, and not a code.
    """
    dropped = np.int32(23 - mantissa_bits)
    below_half = np.int32(np.int32(1 << np.int32(dropped - 1)) - 1)
    odd = np.int32(np.int32(magnitude >> dropped) & 1)
    rounded = np.int32(np.int32(magnitude + np.int32(below_half + odd)) >> dropped)
    normal = np.int32(rounded - np.int32(np.int32(127 - bias) << mantissa_bits))
    shifter = np.int32(np.int32(151 - bias - mantissa_bits) << 23)
    subnormal = np.int32(bits_of_f32(f32_of_bits(magnitude) + f32_of_bits(shifter)) - shifter)
    return normal if magnitude >= np.int32(np.int32(128 - bias) << 23) else subnormal


@device
def nearest_code_of_f64(magnitude: Number, mantissa_bits: Number, bias: Number) -> Number:
    """The same for an f64: one rounding, from all 53 bits of its significand."""
    dropped = np.int64(52 - mantissa_bits)
    below_half = (np.int64(1) << (dropped - 1)) - 1
    rounded = (magnitude + below_half + ((magnitude >> dropped) & 1)) >> dropped
    normal = rounded - (np.int64(1023 - bias) << np.int64(mantissa_bits))
    shifter = np.int64(1076 - bias - mantissa_bits) << 52
    subnormal = bits_of_f64(f64_of_bits(magnitude) + f64_of_bits(shifter)) - shifter
    return normal if magnitude >= np.int64(1024 - bias) << 52 else subnormal


_CODES = (types.uint8, types.uint16)
_NUMBERS = (
    types.int32,  # mantissa bits
    types.int32,  # bias
    types.int32,  # sign bit
    types.int32,  # sign bit of a zero: 0 where the format has no negative zero
    types.int32,  # largest finite code
    types.int32,  # magnitude code of overflow and infinity
    types.int32,  # NaN: its code
    types.int32,  # NaN: the smallest code that is one; a payload that was cut to nothing must not read as infinity
    types.int32,  # NaN: mask of the source's highest mantissa bits that are kept
    types.int32,  # NaN: mask of the source's sign
    types.int32,  # NaN: what the sign is then exclusive-ored with
)


def _encode_f32(through_f16: bool) -> Kernel:
    @kernel(*((readable(types.float32), writable(code), *_NUMBERS) for code in _CODES))
    def encode(
        source: Array,
        target: Array,
        mantissa_bits: Number,
        bias: Number,
        sign_bit: Number,
        zero_sign: Number,
        largest: Number,
        overflow: Number,
        nan: Number,
        smallest_nan: Number,
        nan_payload: Number,
        nan_sign: Number,
        nan_flip: Number,
    ) -> None:
        dropped = np.int32(23 - mantissa_bits)
        for i in range(source.size):
            value = source[i]
            if through_f16:
                # oneDNN adds a zero point of +0 on its way, which takes the sign off -0 and off nothing else.
                value = round_f32_to_f16(value + np.float32(0.0))
            bits = bits_of_f32(value)
            magnitude = np.int32(bits & _F32_MAGNITUDE)
            sign = np.int32(bits >> 31)
            code = nearest_code_of_f32(magnitude, mantissa_bits, bias)
            code = overflow if code > largest else code
            number = np.int32(code | np.int32(sign & (sign_bit if code != 0 else zero_sign)))
            kept = np.int32(nan | np.int32(np.int32(magnitude >> dropped) & nan_payload))
            kept = kept if kept > smallest_nan else smallest_nan
            not_a_number = np.int32(kept | np.int32(np.int32(sign & nan_sign) ^ nan_flip))
            target[i] = not_a_number if magnitude > _F32_INFINITY else number

    return encode


ENCODE_F32: dict[bool, Kernel] = {through_f16: _encode_f32(through_f16) for through_f16 in (False, True)}
"""f32 to codes; the key says whether the value is first rounded to f16, as oneDNN does it."""


@kernel(*((readable(types.float64), writable(code), *_NUMBERS) for code in _CODES))
def encode_f64(
    source: Array,
    target: Array,
    mantissa_bits: Number,
    bias: Number,
    sign_bit: Number,
    zero_sign: Number,
    largest: Number,
    overflow: Number,
    nan: Number,
    smallest_nan: Number,
    nan_payload: Number,
    nan_sign: Number,
    nan_flip: Number,
) -> None:
    """f64 to codes, rounded once."""
    dropped = np.int64(52 - mantissa_bits)
    for i in range(source.size):
        bits = bits_of_f64(source[i])
        magnitude = bits & _F64_MAGNITUDE
        sign = bits >> 63
        code = nearest_code_of_f64(magnitude, mantissa_bits, bias)
        code = np.int64(overflow) if code > largest else code
        number = code | (sign & (np.int64(sign_bit) if code != 0 else np.int64(zero_sign)))
        kept = max(nan | ((magnitude >> dropped) & nan_payload), np.int64(smallest_nan))
        not_a_number = kept | ((sign & nan_sign) ^ nan_flip)
        target[i] = not_a_number if magnitude > _F64_INFINITY else number


@kernel(
    (
        readable(types.float32),
        writable(types.uint8),
        types.int32,  # what is added to the mantissa: 0 (down), 2^22 (nearest, ties up), 2^23 - 1 (up)
        types.int32,  # what is taken off that where the exponent field is 0: 1 for nearest
        types.int32,  # code of a finite value beyond the largest: 254 or 255
        types.boolean,  # whether zero and negative values are NaN; otherwise the sign is ignored
    )
)
def encode_e8m0(
    source: Array, target: Array, added: Number, less: Number, beyond: Number, positive_only: Number
) -> None:
    """f32 to E8M0: the exponent field, plus one where the mantissa says so (G.3)."""
    for i in range(source.size):
        bits = bits_of_f32(source[i])
        exponent = np.int32(np.int32(bits >> 23) & 255)
        addend = np.int32(added - less) if exponent == 0 else added
        carry = np.int32(np.int32(np.int32(bits & 0x7FFFFF) + addend) >> 23)
        code = np.int32(exponent + carry)
        code = beyond if code > 254 else code
        code = np.int32(255) if exponent == 255 else code
        target[i] = np.int32(255) if positive_only & (bits <= 0) else code


@kernel((readable(types.uint8), readable(types.float32), writable(types.float32)))
def decode(source: Array, table: Array, target: Array) -> None:
    """Each code's value, by a table that has an entry for every code that occurs."""
    for i in range(source.size):
        target[i] = table[source[i]]
