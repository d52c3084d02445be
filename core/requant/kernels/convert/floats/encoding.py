"""Kernels from floats to the codes of floats of at most 16 bits, for every format by its numbers.

    y = x,  x * r  or  x / s         one rounding; to f16 or bf16 once more where each step is in that type
    normal:    code = RNE(bits of |y| / 2^(p - m)) - ((bias of the real - bias) << m)
    subnormal: code = bits(|y| + M) - bits(M), M the power of two whose last place is the format's smallest value

m is the number of mantissa bits of the format, p that of the real number y. The first is done in integers, where a
carry moves to the next exponent by itself. What is written for overflow, infinities and NaN is handed in as codes, so
one loop serves every authority.

Only these need to know what a value is. So a span of the tensor is converted without checks, and the largest |y| kept;
if that is an overflow, the span is converted once more by a loop that looks for overflows, and if it is an infinity or
NaN by one that checks everything. y is an f32, to which an f64 is rounded first; or an f64.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import types

from requant.kernels.jit.jit import Array, Kernel, Number, device, inlined, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import I64, U8, In, Out, Real
from requant.kernels.loops import next_vector, span_loop
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.integer_lanes import store_integers
from requant.kernels.simd.memory import elements_of, load, load_as, load_one
from requant.kernels.simd.rounding import round_to_precision
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import any_lane, bits_as, count, first, first_of, larger, select, splat, zero_like
from requant.kernels.simd.widen import FloatKind, load_f32


class Field(IntEnum):
    """Where each number stands in the kernel's `rules`. Codes are magnitude codes, without the sign."""

    SOURCE = 0
    """FloatKind of the source; always F64 where y is an f64."""
    SCALING = 1
    PRECISION = 2
    """What y is rounded to, as `requant.kernels.scalar.rounding.Precision`."""
    ADDS_ZERO = 3
    """Whether +0 is added to y, so that -0 loses its sign."""
    THROUGH_F16 = 4
    """Whether y is then rounded to f16, as oneDNN does it. It adds a zero point of +0 on its way."""
    NAN_UNDEFINED = 5
    """Whether NaN is an error."""
    BYTES = 6
    """Those of a code."""
    MANTISSA_BITS = 7
    BIAS = 8
    SIGN_BIT = 9
    ZERO_SIGN = 10
    """The sign bit of a zero: 0 where the format has no negative zero."""
    HIGHEST = 11
    """The bits of the largest |y| that is no overflow."""
    OVERFLOW = 12
    """The code of an overflow."""
    INFINITY = 13
    """The code of an infinity."""
    NAN = 14
    """The code of a NaN."""
    SMALLEST_NAN = 15
    """The smallest code that is one; a payload that was cut to nothing must not read as infinity."""
    NAN_PAYLOAD = 16
    """Mask of the highest mantissa bits of y that a NaN keeps."""
    NAN_SIGN = 17
    """Mask of the sign that a NaN keeps."""
    NAN_FLIP = 18
    """What the sign of a NaN is then exclusive-ored with."""
    SLIP_FROM = 19
    """The bits of |y| from this, which is beyond HIGHEST,"""
    SLIP_TO = 20
    """to below this"""
    SLIP = 21
    """give this code, whatever the rest says."""


class Scaling(IntEnum):
    """How y comes from x and the factor of its channel. NONE leaves a NaN as it is."""

    NONE = 0
    MULTIPLICATION = 1
    DIVISION = 2


_SOURCE, _SCALING, _PRECISION = int(Field.SOURCE), int(Field.SCALING), int(Field.PRECISION)
_ADDS_ZERO, _THROUGH_F16, _NAN_UNDEFINED = int(Field.ADDS_ZERO), int(Field.THROUGH_F16), int(Field.NAN_UNDEFINED)
_BYTES, _MANTISSA_BITS, _BIAS = int(Field.BYTES), int(Field.MANTISSA_BITS), int(Field.BIAS)
_SIGN_BIT, _ZERO_SIGN, _HIGHEST = int(Field.SIGN_BIT), int(Field.ZERO_SIGN), int(Field.HIGHEST)
_OVERFLOW, _INFINITY, _NAN = int(Field.OVERFLOW), int(Field.INFINITY), int(Field.NAN)
_SMALLEST_NAN, _NAN_PAYLOAD = int(Field.SMALLEST_NAN), int(Field.NAN_PAYLOAD)
_NAN_SIGN, _NAN_FLIP = int(Field.NAN_SIGN), int(Field.NAN_FLIP)
_SLIP_FROM, _SLIP_TO, _SLIP = int(Field.SLIP_FROM), int(Field.SLIP_TO), int(Field.SLIP)
_NO_SCALING, _DIVISION = int(Scaling.NONE), int(Scaling.DIVISION)
_F32 = int(FloatKind.F32)
_NATIVE, _F16 = int(Precision.NATIVE), int(Precision.F16)
# What a span is checked for: nothing; overflow, which is counted; everything.
_CHECK_NONE, _CHECK_OVERFLOW, _CHECK_ALL = range(3)


@device
def _stepped(y: Number, stepping: bool, steps: tuple[int, bool, bool]) -> Number:
    """y in f32 after the further steps that a rule may have: PRECISION, ADDS_ZERO, THROUGH_F16. `stepping`: any."""
    if not stepping:
        return y
    precision, adds_zero, through_f16 = steps
    if precision != _NATIVE:
        y = round_to_precision(y, precision)
    if adds_zero or through_f16:
        y = y + zero_like(y)
    return round_to_precision(y, _F16) if through_f16 else y


def _encode(in_f64: bool) -> Kernel:
    real = types.float64 if in_f64 else types.float32
    real_class, integer_class = (np.float64, np.int64) if in_f64 else (np.float32, np.int32)
    mantissa, real_bias = (52, 1023) if in_f64 else (23, 127)
    last_bit = 63 if in_f64 else 31
    in_f32 = not in_f64
    infinity_bits = (2 * real_bias + 1) << mantissa

    if in_f64:

        @device
        def loaded(source: Array, index: Number, kind: int, mask: Number = None) -> Number:
            return load_as(source, index, np.float64, mask)

        @device
        def stepped(y: Number, stepping: bool, steps: tuple[int, bool, bool]) -> Number:
            return y
    else:
        loaded, stepped = load_f32, _stepped

    @device
    def number(value: Number) -> Number:
        return splat(integer_class(value))

    @device
    def nearest(magnitude: Number, mantissa_bits: Number, bias: Number) -> Number:
        """The code nearest to the number with these bits, as if exponents never ended."""
        dropped = mantissa - mantissa_bits
        below_half = (1 << (dropped - 1)) - 1
        odd = (magnitude >> number(dropped)) & number(1)
        rounded = (magnitude + (odd + number(below_half))) >> number(dropped)
        normal = rounded - number((real_bias - bias) << mantissa_bits)
        shifter = number((real_bias + 1 - bias + dropped) << mantissa)
        subnormal = bits_as(bits_as(magnitude, real_class) + bits_as(shifter, real_class), integer_class) - shifter
        return select(magnitude >= number((real_bias + 1 - bias) << mantissa), normal, subnormal)

    @device
    def signed(code: Number, bits: Number, sign_bit: Number, zero_sign: Number) -> Number:
        sign = select(code == zero_like(code), number(zero_sign), number(sign_bit))
        return code | ((bits >> number(last_bit)) & sign)

    @device
    def holds_nan(value: Number) -> Number:
        return (bits_as(value, integer_class) & number((1 << last_bit) - 1)) > number(infinity_bits)

    @device
    def with_one_nan(x: Number, factor: Number, y: Number) -> Number:
        """`y`, a product or quotient, where a NaN is that of x, else that of the factor, else a negative one.

        Which of two NaNs a processor returns depends on the order of its operands, and the sign of one that it makes
        of numbers, such as 0 * inf, on the processor: x86 makes negative ones.
        """
        quiet = number(1 << (mantissa - 1))
        given = select(holds_nan(x), bits_as(x, integer_class), bits_as(factor, integer_class)) | quiet
        kept = select(holds_nan(x) | holds_nan(factor), given, number(-(1 << (mantissa - 1))))
        return select(holds_nan(y), bits_as(kept, real_class), y)

    @device
    def plain(
        source: Array,
        target: Array,
        i: Number,
        factor: Number,
        kind: int,
        divides: bool,
        stepping: bool,
        steps: tuple[int, bool, bool],
        format_: tuple[int, int, int, int, int, int],
        size: int,
        counting: bool,
    ) -> tuple[Number, Number, Number]:
        """Convert a vector that has nothing but numbers; without `counting`, no overflow either. Return |y|, and how
        many are saturated low and high."""
        x = loaded(source, i, kind)
        y = stepped(x / factor if divides else x * factor, stepping, steps)
        mantissa_bits, bias, sign_bit, zero_sign, highest, overflow = format_
        bits = bits_as(y, integer_class)
        magnitude = bits & number((1 << last_bit) - 1)
        code = nearest(magnitude, mantissa_bits, bias)
        low, high = 0, 0
        if counting:
            beyond = magnitude > number(highest)
            code = select(beyond, number(overflow), code)
            low = count(beyond & (bits < zero_like(bits)))
            high = count(beyond) - low
        store_integers(target, i, signed(code, bits, sign_bit, zero_sign), size)
        return magnitude, low, high

    @device
    def whole_vectors(
        source: Array,
        target: Array,
        begin: Number,
        rows: Number,
        length: Number,
        factors: Array,
        parameter: Number,
        cycle: bool,
        kind: int,
        divides: bool,
        stepping: bool,
        steps: tuple[int, bool, bool],
        format_: tuple[int, int, int, int, int, int],
        size: int,
        counting: bool,
        so_far: tuple[Number, Number, Number],
    ) -> tuple[Number, Number, Number]:
        """Convert the whole vectors of rows. `so_far`: the largest |y|, and how many saturated low and high."""
        most, low, high = so_far
        if rows > 1:
            left = length
            for i in range(begin, begin + rows * length, LANES):
                factor = load_one(factors, parameter)
                magnitude, below, above = plain(
                    source, target, i, factor, kind, divides, stepping, steps, format_, size, counting
                )
                most, low, high = larger(most, magnitude), low + below, high + above
                parameter, left = next_vector(parameter, left, length)
            return most, low, high
        factor = load_one(factors, parameter)
        for i in range(begin, begin + length - length % LANES, LANES):
            if cycle:
                factor = load(factors, parameter + (i - begin))
            magnitude, below, above = plain(
                source, target, i, factor, kind, divides, stepping, steps, format_, size, counting
            )
            most, low, high = larger(most, magnitude), low + below, high + above
        return most, low, high

    @inlined
    def convert_rows(
        work: tuple[Number, ...],
        begin: Number,
        rows: Number,
        length: Number,
        parameter: Number,
        cycle: Number,
        check: Number,
        seen: tuple[Number, ...],
    ) -> tuple[Number, ...]:
        """`seen`: the largest |y|, how many saturated low and high and are NaN, and the first NaN that is an error."""
        source, target, start, factors, kind, scaling, item, steps, stepping, format_, codes, nans, _ = work
        divides = scaling == _DIVISION
        most, low, high, missing, undefined = seen
        rest = length
        if check < _CHECK_ALL:
            so_far = (most, low, high)
            # With constants where it pays: a branch for each vector costs a third of the arithmetic.
            if check == _CHECK_OVERFLOW:
                most, low, high = whole_vectors(
                    source, target, begin, rows, length, factors, parameter, cycle, kind, divides, stepping,
                    steps, format_, item, True, so_far,
                )  # fmt: skip
            elif cycle or stepping or item != 1 or (in_f32 and kind != _F32):
                most, low, high = whole_vectors(
                    source, target, begin, rows, length, factors, parameter, cycle, kind, divides, stepping,
                    steps, format_, item, False, so_far,
                )  # fmt: skip
            elif divides:
                most, low, high = whole_vectors(
                    source, target, begin, rows, length, factors, parameter, False, _F32, True, False,
                    steps, format_, 1, False, so_far,
                )  # fmt: skip
            else:
                most, low, high = whole_vectors(
                    source, target, begin, rows, length, factors, parameter, False, _F32, False, False,
                    steps, format_, 1, False, so_far,
                )  # fmt: skip
            rest = length % LANES
            begin += rows * length - rest
            if cycle:
                parameter += length - rest
            if rest == 0:
                rows = 0
        mantissa_bits, bias, sign_bit, zero_sign, _, _ = format_
        highest, infinity, slip_from, slip_to, overflow_code, infinity_code, slip = codes
        nan, smallest_nan, payload, nan_sign, nan_flip, nan_undefined = nans
        for index in range(parameter, parameter + rows):
            factor = load_one(factors, index)
            end = begin + rest
            for i in range(begin, end, LANES):
                valid = first(end - i)
                if cycle:
                    factor = load(factors, index + (i - begin), valid)
                x = loaded(source, i, kind, valid)
                y = x
                if scaling != _NO_SCALING:
                    y = x / factor if divides else x * factor
                    y = with_one_nan(x, factor, y)
                y = stepped(y, stepping, steps)
                bits = bits_as(y, integer_class)
                magnitude = bits & number((1 << last_bit) - 1)
                most = larger(most, select(valid, magnitude, zero_like(magnitude)))
                negative = bits >> number(last_bit)
                is_nan = (magnitude > infinity) & valid
                beyond = (magnitude > highest) & valid & ~is_nan
                is_low = beyond & (negative != zero_like(negative))
                low += count(is_low)
                high += count(beyond & ~is_low)
                missing += count(is_nan)
                code = select(magnitude > highest, overflow_code, nearest(magnitude, mantissa_bits, bias))
                code = select(magnitude == infinity, infinity_code, code)
                code = select((magnitude >= slip_from) & (magnitude < slip_to), slip, code)
                code = signed(code, bits, sign_bit, zero_sign)
                kept = nan | ((magnitude >> number(mantissa - mantissa_bits)) & payload)
                not_a_number = larger(kept, smallest_nan) | ((negative & nan_sign) ^ nan_flip)
                store_integers(target, i, select(is_nan, not_a_number, code), item, valid)
                if nan_undefined and undefined < 0 and any_lane(is_nan):
                    undefined = start + i + first_of(is_nan)
            begin = end
        return most, low, high, missing, undefined

    @inlined
    def finish(work: tuple[Number, ...], check: Number, seen: tuple[Number, ...], counts: Array) -> Number:
        most, low, high, missing, undefined = seen
        highest, last_unchecked = work[12]
        needed = _CHECK_NONE
        if any_lane(most > highest):
            needed = _CHECK_OVERFLOW
        if any_lane(most > last_unchecked):
            needed = _CHECK_ALL
        if needed <= check:
            counts[0] += low
            counts[1] += high
            counts[2] += missing
            if counts[3] < 0:
                counts[3] = undefined
        return needed

    convert_spans = span_loop(convert_rows, finish)

    @kernel({Real: real})
    def encode(
        source: In[U8],  # as bytes
        target: Out[U8],  # as bytes
        start: I64,  # index of source[0] in the whole tensor
        size: I64,  # how many elements there are
        numbers: In[I64],  # requant.kernels.loops.unpacked
        factors: In[Real],  # scales or reciprocals, one for each parameter; 1 without scaling
        rules: In[I64],  # by Field
        counts: Out[I64],  # saturated low, saturated high, NaN, first NaN that is an error or -1
    ) -> None:
        prefer_wide_vectors()
        steps = (rules[_PRECISION], rules[_ADDS_ZERO] != 0, rules[_THROUGH_F16] != 0)
        stepping = (rules[_PRECISION] != _NATIVE) | (rules[_ADDS_ZERO] != 0) | (rules[_THROUGH_F16] != 0)
        format_ = (
            rules[_MANTISSA_BITS], rules[_BIAS], rules[_SIGN_BIT], rules[_ZERO_SIGN], rules[_HIGHEST],
            rules[_OVERFLOW],
        )  # fmt: skip
        highest = number(rules[_HIGHEST])
        codes = (
            highest, number(infinity_bits), number(rules[_SLIP_FROM]), number(rules[_SLIP_TO]),
            number(rules[_OVERFLOW]), number(rules[_INFINITY]), number(rules[_SLIP]),
        )  # fmt: skip
        nans = (
            number(rules[_NAN]), number(rules[_SMALLEST_NAN]), number(rules[_NAN_PAYLOAD]), number(rules[_NAN_SIGN]),
            number(rules[_NAN_FLIP]), rules[_NAN_UNDEFINED] != 0,
        )  # fmt: skip
        # An infinity is an overflow like any other where both give the same code.
        last_overflow = infinity_bits if rules[_INFINITY] == rules[_OVERFLOW] else infinity_bits - 1
        last_unchecked = number(min(last_overflow, rules[_SLIP_FROM] - 1))
        work = (
            elements_of(source), elements_of(target), start, elements_of(factors), rules[_SOURCE], rules[_SCALING],
            rules[_BYTES], steps, stepping, format_, codes, nans, (highest, last_unchecked),
        )  # fmt: skip
        none = np.int64(0)
        convert_spans(work, start, size, numbers, (zero_like(highest), none, none, none, np.int64(-1)), counts)

    return encode


ENCODE: dict[str, Kernel] = {"<f4": _encode(False), "<f8": _encode(True)}
"""The kernel for the dtype that is computed in."""
