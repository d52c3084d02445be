"""The kernels from integers to integers by any rule, for every layout and storage, that check each element. Formulas:
spec/numerics.md C.5, D, H.3; spec/mlir.md 5.3.

    v = q - z_in ;  y = multiply(v, multiplier, shift)  or  round(f(v) * factor) ;  clamp(y + z_out, minimum, maximum)

f is f32 or f64; each rule says where the zero point goes. `v`, `y` and `y + z_out` must be what the scheme is defined
for: the first element for which they are not is reported, with what failed.
`core.kernels.convert.requantize.fixed_point` and `core.kernels.convert.requantize.real_factor` are for the tensors of
which it is proved that none fails.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import types

from core.kernels.convert.requantize.rules import FixedPointRule, FloatRule, Requirement
from core.kernels.jit.jit import Array, Kernel, Number, device, kernel, readable, writable
from core.kernels.jit.processor import prefer_wide_vectors
from core.kernels.loop.layout import advance, left_in_row, locate, unpacked
from core.kernels.simd.fixed_point import (
    multiply_double_rounding,
    multiply_double_rounding_up,
    multiply_tosa_double_rounding,
    rounding_shift_away,
    rounding_shift_right,
    wrap_int32,
)
from core.kernels.simd.integer_lanes import load_integers, store_integers
from core.kernels.simd.memory import load_first
from core.kernels.simd.vector import LANES
from core.kernels.simd.vectors import (
    convert,
    first,
    first_of,
    half_away,
    half_even,
    larger,
    smaller,
    some,
    splat,
    total,
)


class Field(IntEnum):
    """Where each choice stands in the kernels' `rules`."""

    RULE = 0
    SOURCE_BYTES = 1
    """Those of an element of the source."""
    SOURCE_SIGNED = 2
    TARGET_BYTES = 3
    WRAPS = 4
    """Whether y + z_out wraps in int32; with a real factor it never does."""


_DOUBLE = int(FixedPointRule.DOUBLE)
_DOUBLE_UP = int(FixedPointRule.DOUBLE_UP)
_NEAREST_AWAY = int(FixedPointRule.NEAREST_AWAY)
_TOSA_DOUBLE = int(FixedPointRule.TOSA_DOUBLE)
_F32_EVEN = int(FloatRule.F32_EVEN)
_F32_OFFSET = int(FloatRule.F32_OFFSET)
_F64_EVEN_OFFSET = int(FloatRule.F64_EVEN_OFFSET)
_VALUE, _SCALED, _SUM = (int(each) for each in Requirement)


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


def _requantize(floating: bool) -> Kernel:
    number = types.float64 if floating else types.int64
    number_class = np.float64 if floating else np.int64

    @kernel(
        (
            readable(types.uint8),  # source, as bytes
            writable(types.uint8),  # target, as bytes
            types.int64,  # start: index of source[0] in the whole tensor
            types.int64,  # how many elements there are
            readable(types.int64),  # core.kernels.loop.layout.unpacked
            readable(types.int64),  # rules, by Field
            readable(number),  # multipliers, or factors: one for each parameter
            readable(number),  # right shifts 0..62, or offsets, likewise
            readable(types.int64),  # widths of v 0..62, likewise
            readable(types.int64),  # zero points of the source, likewise
            readable(types.int64),  # zero points of the target, likewise
            readable(number),  # bounds: minimum, maximum, lowest y, highest y, lowest y + z_out, highest y + z_out
            writable(types.int64),  # counts, added to: low, high, -; index of the first undefined element, or -1; its
            # Requirement
        )
    )
    def requantize(
        source: Array,
        target: Array,
        start: Number,
        size: Number,
        numbers: Array,
        rules: Array,
        multipliers: Array,
        shifts: Array,
        widths: Array,
        zeros_in: Array,
        zeros_out: Array,
        bounds: Array,
        counts: Array,
    ) -> None:
        prefer_wide_vectors()
        rule, source_bytes, signed, target_bytes, wraps = rules[0], rules[1], rules[2] != 0, rules[3], rules[4] != 0
        minimum, maximum = splat(bounds[0]), splat(bounds[1])
        lowest, highest = splat(bounds[2]), splat(bounds[3])
        lowest_sum, highest_sum = splat(bounds[4]), splat(bounds[5])
        layout = unpacked(numbers)
        cycle = layout[4] != 0
        place = locate(start, layout)
        low, high = splat(np.int64(0)), splat(np.int64(0))
        undefined = np.int64(-1)
        requirement = np.int64(0)
        done = 0
        while done < size:
            end = done + min(left_in_row(place, layout), size - done)
            parameter = place[0] + place[1]
            place = advance(end - done, place, layout)
            multiplier = splat(multipliers[parameter])
            shift = splat(shifts[parameter])
            width = splat(widths[parameter])
            zero_in = splat(zeros_in[parameter])
            zero_out = splat(zeros_out[parameter])
            for i in range(done, end, LANES):
                valid = first(end - i)
                if cycle:
                    at = parameter + (i - done)
                    multiplier = load_first(multipliers, at, valid)
                    shift = load_first(shifts, at, valid)
                    width = load_first(widths, at, valid)
                    zero_in = load_first(zeros_in, at, valid)
                    zero_out = load_first(zeros_out, at, valid)
                # Where q - z_in passes int64 it wraps to the other end, and no width reaches there either.
                value = load_integers(source, i, valid, source_bytes, signed) - zero_in
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
                if undefined < 0 and some(fails):
                    found = first_of(fails)
                    this = first(found + 1) & ~first(found)
                    requirement = np.int64(_SUM)
                    if some(this & scaled_fails):
                        requirement = np.int64(_SCALED)
                    if some(this & value_fails):
                        requirement = np.int64(_VALUE)
                    undefined = start + i + found
                summed = summed if floating else _wrapped(summed, wraps)
                low = low - convert(valid & (summed < minimum), np.int64)
                high = high - convert(valid & (summed > maximum), np.int64)
                bounded = convert(smaller(larger(summed, minimum), maximum), np.int64)
                store_integers(target, i, bounded, valid, target_bytes)
            done = end
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
