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
_E8M0_SMALLEST = 0x00400000  # 2^-127 as an f32


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
    types.int32,  # magnitude code of overflow
    types.int32,  # magnitude code of infinity
    types.int32,  # NaN: its code
    types.int32,  # NaN: the smallest code that is one; a payload that was cut to nothing must not read as infinity
    types.int32,  # NaN: mask of the source's highest mantissa bits that are kept
    types.int32,  # NaN: mask of the source's sign
    types.int32,  # NaN: what the sign is then exclusive-ored with
)
_COUNTS = writable(types.int64)  # saturated low, saturated high, NaN


def _encode_f32(through_f16: bool) -> Kernel:
    @kernel(
        *(
            (
                readable(types.float32),
                writable(code),
                *_NUMBERS,
                types.int32,  # the f32 magnitudes from this
                types.int32,  # to below this
                types.int32,  # give this magnitude code, whatever the rest says
                _COUNTS,
            )
            for code in _CODES
        )
    )
    def encode(
        source: Array,
        target: Array,
        mantissa_bits: Number,
        bias: Number,
        sign_bit: Number,
        zero_sign: Number,
        largest: Number,
        overflow: Number,
        infinity: Number,
        nan: Number,
        smallest_nan: Number,
        nan_payload: Number,
        nan_sign: Number,
        nan_flip: Number,
        slip_from: Number,
        slip_to: Number,
        slip: Number,
        counts: Array,
    ) -> None:
        dropped = np.int32(23 - mantissa_bits)
        low = np.int32(0)
        high = np.int32(0)
        missing = np.int32(0)
        for i in range(source.size):
            value = source[i]
            if through_f16:
                # oneDNN adds a zero point of +0 on its way, which takes the sign off -0 and off nothing else.
                value = round_f32_to_f16(value + np.float32(0.0))
            bits = bits_of_f32(value)
            magnitude = np.int32(bits & _F32_MAGNITUDE)
            sign = np.int32(bits >> 31)
            code = nearest_code_of_f32(magnitude, mantissa_bits, bias)
            is_nan = np.int32(magnitude > _F32_INFINITY)
            beyond = np.int32(np.int32(code > largest) & np.int32(1 - is_nan))
            low = np.int32(low + np.int32(beyond & sign))
            high = np.int32(high + np.int32(beyond & ~sign))
            missing = np.int32(missing + is_nan)
            code = overflow if code > largest else code
            code = infinity if magnitude == _F32_INFINITY else code
            code = slip if (magnitude >= slip_from) & (magnitude < slip_to) else code
            number = np.int32(code | np.int32(sign & (sign_bit if code != 0 else zero_sign)))
            kept = np.int32(nan | np.int32(np.int32(magnitude >> dropped) & nan_payload))
            kept = kept if kept > smallest_nan else smallest_nan
            not_a_number = np.int32(kept | np.int32(np.int32(sign & nan_sign) ^ nan_flip))
            target[i] = not_a_number if magnitude > _F32_INFINITY else number
        counts[0] += low
        counts[1] += high
        counts[2] += missing

    return encode


ENCODE_F32: dict[bool, Kernel] = {through_f16: _encode_f32(through_f16) for through_f16 in (False, True)}
"""f32 to codes; the key says whether the value is first rounded to f16, as oneDNN does it."""


@kernel(*((readable(types.float64), writable(code), *_NUMBERS, _COUNTS) for code in _CODES))
def encode_f64(
    source: Array,
    target: Array,
    mantissa_bits: Number,
    bias: Number,
    sign_bit: Number,
    zero_sign: Number,
    largest: Number,
    overflow: Number,
    infinity: Number,
    nan: Number,
    smallest_nan: Number,
    nan_payload: Number,
    nan_sign: Number,
    nan_flip: Number,
    counts: Array,
) -> None:
    """f64 to codes, rounded once."""
    dropped = np.int64(52 - mantissa_bits)
    for i in range(source.size):
        bits = bits_of_f64(source[i])
        magnitude = bits & _F64_MAGNITUDE
        sign = bits >> 63
        code = nearest_code_of_f64(magnitude, mantissa_bits, bias)
        is_nan = magnitude > _F64_INFINITY
        beyond = (code > largest) & (not is_nan)
        counts[0] += beyond & (sign != 0)
        counts[1] += beyond & (sign == 0)
        counts[2] += is_nan
        code = np.int64(overflow) if code > largest else code
        code = np.int64(infinity) if magnitude == _F64_INFINITY else code
        number = code | (sign & (np.int64(sign_bit) if code != 0 else np.int64(zero_sign)))
        kept = max(nan | ((magnitude >> dropped) & nan_payload), np.int64(smallest_nan))
        not_a_number = kept | ((sign & nan_sign) ^ nan_flip)
        target[i] = not_a_number if is_nan else number


@kernel(
    (
        readable(types.float32),
        writable(types.uint8),
        types.int32,  # what is added to the mantissa: 0 (down), 2^22 (nearest, ties up), 2^23 - 1 (up)
        types.int32,  # what is taken off that where the exponent field is 0
        types.boolean,  # whether the mantissa of a subnormal is first scaled, so that 2^-127 has the mantissa 0
        types.boolean,  # whether the sign counts; otherwise it is ignored
        types.int32,  # the highest pattern that is not beyond the range
        types.int32,  # code of finite values beyond the range
        types.int32,  # code of infinity
        types.int32,  # patterns below this
        types.int32,  # give this code
        _COUNTS,
    )
)
def encode_e8m0(
    source: Array,
    target: Array,
    added: Number,
    less: Number,
    scaled: Number,
    signed: Number,
    highest: Number,
    above: Number,
    infinite: Number,
    lowest: Number,
    below: Number,
    counts: Array,
) -> None:
    """f32 to E8M0: the exponent field, plus one where the mantissa says so (G.3).

    Counted as low is what is less than 2^-127, and as high what is beyond the range.
    """
    for i in range(source.size):
        bits = bits_of_f32(source[i])
        magnitude = np.int32(bits & _F32_MAGNITUDE)
        pattern = bits if signed else magnitude
        exponent = np.int32(magnitude >> 23)
        mantissa = np.int32(magnitude & 0x7FFFFF)
        addend = np.int32(added - less) if exponent == 0 else added
        mantissa = np.int32(np.int32(mantissa << 1) & 0x7FFFFF) if scaled & (exponent == 0) else mantissa
        code = np.int32(exponent + np.int32(np.int32(mantissa + addend) >> 23))
        code = above if pattern > highest else code
        code = infinite if pattern == _F32_INFINITY else code
        code = below if pattern < lowest else code
        is_nan = magnitude > _F32_INFINITY
        counts[0] += (not is_nan) & (pattern < _E8M0_SMALLEST)
        counts[1] += (not is_nan) & (pattern > highest)
        counts[2] += is_nan
        target[i] = np.int32(255) if is_nan else code


@kernel((readable(types.uint8), readable(types.float32), writable(types.float32)))
def decode(source: Array, table: Array, target: Array) -> None:
    """Each code's value, by a table that has an entry for every code that occurs."""
    for i in range(source.size):
        target[i] = table[source[i]]
