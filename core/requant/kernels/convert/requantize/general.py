"""The kernels from integers to integers by any rule, for every layout and storage, that check each element.

    v = q - z_in ;  y = multiply(v, multiplier, shift)  or  round(f(v) * factor) ;  clamp(y + z_out, minimum, maximum)

f is f32 or f64; each rule says where the zero point goes. `v`, `y` and `y + z_out` must be what the scheme is defined
for: the first element for which they are not is reported, with what failed.
`requant.kernels.convert.requantize.fixed_point` and `requant.kernels.convert.requantize.real_factor` are for the
tensors of which it is proved that none fails.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

import numpy as np
from numba import types

from requant.kernels.convert.requantize.rules import FixedPointRule, FloatRule, Requirement
from requant.kernels.jit.jit import Kernel, Number, device, inlined, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import F64, I64, U8, In, Out
from requant.kernels.loops import ZERO, locate, row_loop, unpacked
from requant.kernels.simd.fixed_point import (
    multiply_double_rounding,
    multiply_double_rounding_up,
    multiply_tosa_double_rounding,
    rounding_shift_away,
    rounding_shift_even,
    rounding_shift_odd,
    rounding_shift_right,
    wrap_int32,
)
from requant.kernels.simd.integer_lanes import load_int64, store_integers
from requant.kernels.simd.memory import elements_of, load, load_one
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import (
    any_lane,
    clamp,
    convert,
    first,
    first_of,
    half_away,
    half_even,
    splat,
    total,
)

Multiplier = TypeVar("Multiplier", I64, F64)


class Field(IntEnum):
    """Where each choice stands in the kernels' `rules`."""

    RULE = 0
    SOURCE = 1
    """Its Storage."""
    TARGET_BYTES = 2
    WRAPS = 3
    """Whether y + z_out wraps in int32."""


_DOUBLE = int(FixedPointRule.DOUBLE)
_DOUBLE_UP = int(FixedPointRule.DOUBLE_UP)
_NEAREST_AWAY = int(FixedPointRule.NEAREST_AWAY)
_TOSA_DOUBLE = int(FixedPointRule.TOSA_DOUBLE)
_NEAREST_EVEN, _FLOOR, _ODD = (
    int(rule) for rule in (FixedPointRule.NEAREST_EVEN, FixedPointRule.FLOOR, FixedPointRule.ODD)
)
_F32_EVEN = int(FloatRule.F32_EVEN)
_F32_OFFSET = int(FloatRule.F32_OFFSET)
_F64_EVEN_OFFSET = int(FloatRule.F64_EVEN_OFFSET)
_VALUE, _SCALED, _SUM = (int(each) for each in Requirement)
_LOWEST, _HIGHEST = np.float64(-(2.0**40)), np.float64(2.0**40)


@device
def _multiplied(rule: int, value: Number, multiplier: Number, shift: Number) -> Number:
    """y, by a fixed-point rule."""
    if rule == _DOUBLE:
        return multiply_double_rounding(value, multiplier, shift)
    if rule == _DOUBLE_UP:
        return multiply_double_rounding_up(value, multiplier, shift)
    if rule == _NEAREST_AWAY:
        return rounding_shift_away(value * multiplier, shift)
    if rule == _TOSA_DOUBLE:
        return multiply_tosa_double_rounding(value, multiplier, shift)
    if rule == _NEAREST_EVEN:
        return rounding_shift_even(value * multiplier, shift)
    if rule == _FLOOR:
        return (value * multiplier) >> shift
    if rule == _ODD:
        return rounding_shift_odd(value * multiplier, shift)
    return rounding_shift_right(value * multiplier, shift)


@device
def _rounded(rule: int, value: Number, factor: Number, offset: Number) -> Number:
    """y, by a rule with a real factor, as f64."""
    if rule == _F32_EVEN:
        return convert(half_even(convert(value, np.float32) * convert(factor, np.float32)), np.float64)
    if rule == _F32_OFFSET:
        product = convert(value, np.float32) * convert(factor, np.float32)
        return convert(half_even(product + convert(offset, np.float32)), np.float64)
    if rule == _F64_EVEN_OFFSET:
        return half_even(convert(value, np.float64) * factor + offset)
    return half_away(convert(value, np.float64) * factor)


@device
def _wrapped(value: Number, wraps: Number) -> Number:
    return wrap_int32(value) if wraps else value


@device
def _wrapped_float(value: Number, wraps: Number) -> Number:
    """The same of an integer in f64. What int64 does not hold has failed a requirement before."""
    if not wraps:
        return value
    return convert(wrap_int32(convert(clamp(value, splat(_LOWEST), splat(_HIGHEST)), np.int64)), np.float64)


def _requantize(floating: bool) -> Kernel:
    number = types.float64 if floating else types.int64
    number_class = np.float64 if floating else np.int64

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
        """`seen`: how many saturate low and high in each lane; the first undefined element and its Requirement."""
        source, target, start, choices, parameters, bounds = work
        rule, storage, target_bytes, wraps = choices
        multipliers, shifts, widths, zeros_in, zeros_out = parameters
        minimum, maximum, lowest, highest, lowest_sum, highest_sum = bounds
        low, high, undefined, requirement = seen
        for index in range(parameter, parameter + rows):
            multiplier, shift = load_one(multipliers, index), load_one(shifts, index)
            width = load_one(widths, index)
            zero_in, zero_out = load_one(zeros_in, index), load_one(zeros_out, index)
            end = begin + length
            for i in range(begin, end, LANES):
                valid = first(end - i)
                if cycle:
                    at = index + (i - begin)
                    multiplier, shift = load(multipliers, at, valid), load(shifts, at, valid)
                    width = load(widths, at, valid)
                    zero_in, zero_out = load(zeros_in, at, valid), load(zeros_out, at, valid)
                # Where q - z_in passes int64 it wraps to the other end, and no width reaches there either.
                value = load_int64(source, i, storage, valid) - zero_in
                if floating:
                    scaled = _rounded(rule, value, multiplier, shift)
                else:
                    scaled = _multiplied(rule, value, multiplier, shift)
                summed = scaled + convert(zero_out, number_class)
                bound = splat(np.int64(1)) << width
                value_fails = valid & ((value < -bound) | (value >= bound))
                scaled_fails = valid & ((scaled < lowest) | (scaled > highest))
                sum_fails = valid & ((summed < lowest_sum) | (summed > highest_sum))
                fails = value_fails | scaled_fails | sum_fails
                if undefined < 0 and any_lane(fails):
                    found = first_of(fails)
                    this = first(found + 1) & ~first(found)
                    requirement = np.int64(_SUM)
                    if any_lane(this & scaled_fails):
                        requirement = np.int64(_SCALED)
                    if any_lane(this & value_fails):
                        requirement = np.int64(_VALUE)
                    undefined = start + i + found
                summed = _wrapped_float(summed, wraps) if floating else _wrapped(summed, wraps)
                low = low - convert(valid & (summed < minimum), np.int64)
                high = high - convert(valid & (summed > maximum), np.int64)
                bounded = convert(clamp(summed, minimum, maximum), np.int64)
                store_integers(target, i, bounded, target_bytes, valid)
            begin = end
        return low, high, undefined, requirement

    convert_between = row_loop(convert_rows)

    @kernel({Multiplier: number})
    def requantize(
        source: In[U8],  # as bytes
        target: Out[U8],  # as bytes
        start: I64,  # index of source[0] in the whole tensor
        size: I64,  # how many elements there are
        numbers: In[I64],  # requant.kernels.loops.unpacked
        rules: In[I64],  # by Field
        multipliers: In[Multiplier],  # or factors: one for each parameter
        shifts: In[Multiplier],  # right shifts 0..62, or offsets, likewise
        widths: In[I64],  # of v 0..62, likewise
        zeros_in: In[I64],  # zero points of the source, likewise
        zeros_out: In[I64],  # zero points of the target, likewise
        bounds: In[Multiplier],  # minimum, maximum, lowest y, highest y, lowest y + z_out, highest y + z_out
        counts: Out[I64],  # added to: low, high, -; index of the first undefined element, or -1; its
    ) -> None:
        prefer_wide_vectors()
        choices = (rules[0], rules[1], rules[2], rules[3] != 0)
        parameters = (
            elements_of(multipliers), elements_of(shifts), elements_of(widths), elements_of(zeros_in),
            elements_of(zeros_out),
        )  # fmt: skip
        of_all = (
            splat(bounds[0]), splat(bounds[1]), splat(bounds[2]), splat(bounds[3]), splat(bounds[4]), splat(bounds[5]),
        )  # fmt: skip
        work = (elements_of(source), elements_of(target), start, choices, parameters, of_all)
        none = splat(np.int64(0))
        nothing = (none, none, np.int64(-1), np.int64(0))
        layout = unpacked(numbers)
        _, seen = convert_between(work, ZERO, size, locate(start, layout), layout, ZERO, nothing)
        low, high, undefined, requirement = seen
        counts[0] += total(low)
        counts[1] += total(high)
        if counts[3] < 0 and undefined >= 0:
            counts[3] = undefined
            counts[4] = requirement

    return requantize


REQUANTIZE_ANY = _requantize(floating=False)
"""The kernel of multipliers and shifts."""

REQUANTIZE_FLOAT_ANY = _requantize(floating=True)
"""The kernel of real factors."""
