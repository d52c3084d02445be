"""The kernel from floats to the codes of floats of at most 32 bits by any rounding, whatever the rule for overflow and
NaN. `requant.kernels.convert.floats.encoding` is for rounding to nearest even and the rules that most systems have.

    e = max(exponent of |x|, the lowest of the format);  q = floor((significand + addend) / 2^shift)

The significand of x is an integer of 53 bits, `shift` what it has more than the format has at e, and the code is that
of e plus q, where a carry moves to the next exponent by itself. `ones` has all bits set that are shifted out:

| rounding     | addend                                                                   |
| ------------ | ------------------------------------------------------------------------ |
| NEAREST_EVEN | 2^(shift-1) - 1, one more where the last bit that stays is 1             |
| NEAREST_AWAY | 2^(shift-1)                                                              |
| TOWARD_ZERO  | 0                                                                        |
| FLOOR        | ones where x < 0, else 0                                                 |
| CEILING      | ones where x > 0, else 0                                                 |
| ODD          | ones where the last bit that stays is 0, else 0                          |
| STOCHASTIC   | the drawn bits, the highest of them worth 2^(shift-1)                     |

All is done in 64 bits, in which every source is exact.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from requant.formats.rounding import Rounding
from requant.kernels.jit.jit import Array, Number, device, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import I64, U8, In, Out
from requant.kernels.simd.integer_lanes import store_integers
from requant.kernels.simd.memory import elements_of, load_as
from requant.kernels.simd.rounding import draw
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import (
    any_lane,
    bits_as,
    convert,
    count,
    first,
    first_of,
    larger,
    select,
    smaller,
    splat,
    zero_like,
)
from requant.kernels.simd.widen import FloatKind, load_f32


class Field(IntEnum):
    """Where each number stands in the kernel's `rules`."""

    SOURCE = 0
    """FloatKind of the source."""
    ROUNDING = 1
    """The code of the Rounding."""
    RANDOM_BITS = 2
    """How many of the 32 bits that are drawn for an element count, the highest ones."""
    NAN_UNDEFINED = 3
    """Whether NaN is an error."""
    BYTES = 4
    """Those of a code."""
    MANTISSA_BITS = 5
    BIAS = 6
    SIGN_BIT = 7
    ZERO_SIGN = 8
    """The sign bit of a zero: 0 where the format has no negative zero."""
    LARGEST = 9
    """The code of the largest finite value."""
    OVERFLOW = 10
    """The code of an overflow,"""
    NEGATIVE_OVERFLOW = 11
    """and of one below zero."""
    INFINITY = 12
    NEGATIVE_INFINITY = 13
    NAN = 14
    """The code of a NaN without sign, a quiet one,"""
    NEGATIVE_NAN = 15
    NAN_PAYLOAD = 16
    """Mask of the highest mantissa bits of x that are put in."""


_SOURCE, _ROUNDING, _RANDOM_BITS = int(Field.SOURCE), int(Field.ROUNDING), int(Field.RANDOM_BITS)
_NAN_UNDEFINED, _BYTES = int(Field.NAN_UNDEFINED), int(Field.BYTES)
_MANTISSA_BITS, _BIAS = int(Field.MANTISSA_BITS), int(Field.BIAS)
_SIGN_BIT, _ZERO_SIGN, _LARGEST = int(Field.SIGN_BIT), int(Field.ZERO_SIGN), int(Field.LARGEST)
_OVERFLOW, _NEGATIVE_OVERFLOW = int(Field.OVERFLOW), int(Field.NEGATIVE_OVERFLOW)
_INFINITY, _NEGATIVE_INFINITY = int(Field.INFINITY), int(Field.NEGATIVE_INFINITY)
_NAN, _NEGATIVE_NAN, _NAN_PAYLOAD = int(Field.NAN), int(Field.NEGATIVE_NAN), int(Field.NAN_PAYLOAD)
_NEAREST_EVEN = Rounding.NEAREST_EVEN.code
_NEAREST_AWAY, _FLOOR, _CEILING = Rounding.NEAREST_AWAY.code, Rounding.FLOOR.code, Rounding.CEILING.code
_ODD, _STOCHASTIC = Rounding.ODD.code, Rounding.STOCHASTIC.code
_F64 = int(FloatKind.F64)
_MANTISSA, _REAL_BIAS = 52, 1023
_HIDDEN, _INFINITE, _MAGNITUDE = 1 << _MANTISSA, 2047 << _MANTISSA, (1 << 63) - 1
# From this on the significand is below a half, and only whether it is 0 counts, or to STOCHASTIC its highest bits.
_LONGEST_SHIFT = _MANTISSA + 2
# From the highest of 32 bits to the highest below the longest shift.
_TO_LONGEST_SHIFT = _LONGEST_SHIFT - 32


@device
def _number(value: Number) -> Number:
    return splat(np.int64(value))


@device
def _load_f64(source: Array, index: Number, kind: int, mask: Number) -> Number:
    """The floats from `index` on in an array of bytes. A signalling NaN of f32 becomes a quiet one."""
    if kind == _F64:
        return load_as(source, index, np.float64, mask)
    return convert(load_f32(source, index, kind, mask), np.float64)


@device
def _addend(rounding: int, shift: Number, last: Number, negative: Number, drawn: Number) -> Number:
    """What is added before the division. `last`: the last bit that stays; `negative`: all bits of those that are."""
    ones = (_number(1) << shift) - _number(1)
    if rounding == _NEAREST_EVEN:
        return (ones >> _number(1)) + last
    if rounding == _NEAREST_AWAY:
        return ones - (ones >> _number(1))
    if rounding == _FLOOR:
        return ones & negative
    if rounding == _CEILING:
        return ones & ~negative
    if rounding == _ODD:
        return ones & (last - _number(1))
    if rounding == _STOCHASTIC:
        return drawn >> (_number(_LONGEST_SHIFT) - shift)
    return zero_like(shift)


@kernel()
def encode_any(
    source: In[U8],  # as bytes
    target: Out[U8],  # as bytes
    start: I64,  # index of source[0] in the whole tensor
    size: I64,  # how many elements there are
    seed: I64,  # of STOCHASTIC
    rules: In[I64],  # by Field
    counts: Out[I64],  # saturated low, saturated high, NaN, first NaN that is an error or -1
) -> None:
    """The kernel."""
    prefer_wide_vectors()
    kind, rounding, item, mantissa_bits = rules[_SOURCE], rules[_ROUNDING], rules[_BYTES], rules[_MANTISSA_BITS]
    reals, codes = elements_of(source), elements_of(target)
    dropped = _number(_MANTISSA - mantissa_bits)
    lowest = _number(1 + _REAL_BIAS - rules[_BIAS])
    bits_of_mantissa = _number(mantissa_bits)
    unused = splat(np.uint64(32 - rules[_RANDOM_BITS]))
    largest, infinite = _number(rules[_LARGEST]), _number(_INFINITE)
    low, high, missing, undefined = np.int64(0), np.int64(0), np.int64(0), np.int64(-1)
    for i in range(0, size, LANES):
        valid = first(size - i)
        bits = bits_as(_load_f64(reals, i, kind, valid), np.int64)
        magnitude, negative = bits & _number(_MAGNITUDE), bits >> _number(63)
        field = magnitude >> _number(_MANTISSA)
        exponent = larger(field, _number(1))
        hidden = select(field > zero_like(field), _number(_HIDDEN), zero_like(field))
        significand = (magnitude & _number(_HIDDEN - 1)) | hidden
        whole_shift = dropped + larger(lowest - exponent, zero_like(exponent))
        shift = smaller(whole_shift, _number(_LONGEST_SHIFT))
        drawn = zero_like(bits)
        if rounding == _STOCHASTIC:
            kept = (draw(seed, start + i) >> unused) << unused
            drawn = convert(kept, np.int64) << _number(_TO_LONGEST_SHIFT)
            # What is lost here is worth less than the last of the drawn bits.
            significand = significand >> smaller(whole_shift - shift, _number(63))
        last = (significand >> shift) & _number(1)
        quotient = (significand + _addend(rounding, shift, last, negative, drawn)) >> shift
        code = (larger(exponent - lowest, zero_like(exponent)) << bits_of_mantissa) + quotient
        is_nan, is_negative = (magnitude > infinite) & valid, negative != zero_like(negative)
        beyond = (code > largest) & valid & ~is_nan
        is_low = beyond & is_negative
        low += count(is_low)
        high += count(beyond & ~is_low)
        missing += count(is_nan)
        sign = select(code == zero_like(code), _number(rules[_ZERO_SIGN]), _number(rules[_SIGN_BIT]))
        overflow = select(is_negative, _number(rules[_NEGATIVE_OVERFLOW]), _number(rules[_OVERFLOW]))
        infinity = select(is_negative, _number(rules[_NEGATIVE_INFINITY]), _number(rules[_INFINITY]))
        not_a_number = select(is_negative, _number(rules[_NEGATIVE_NAN]), _number(rules[_NAN]))
        not_a_number = not_a_number | ((magnitude >> dropped) & _number(rules[_NAN_PAYLOAD]))
        code = select(code > largest, overflow, code | (negative & sign))
        code = select(magnitude == infinite, infinity, code)
        store_integers(codes, i, select(is_nan, not_a_number, code), item, valid)
        if rules[_NAN_UNDEFINED] != 0 and undefined < 0 and any_lane(is_nan):
            undefined = start + i + first_of(is_nan)
    counts[0] += low
    counts[1] += high
    counts[2] += missing
    if counts[3] < 0:
        counts[3] = undefined
