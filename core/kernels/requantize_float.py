"""Kernels from integers to integers by a real factor, for every layout and storage. Formulas: spec/numerics.md H.3.

    v = q - z_in ;  y = round(f(v) * factor) + z_out ;  clamp(y, minimum, maximum)

f is f32 or f64; each rule says where the zero point goes. `v` and `y` must be what the scheme is defined for, as in
`core.kernels.requantize`.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import types

from core.kernels._jit import Array, Kernel, Number, device, kernel, readable, writable
from core.kernels.integer_lanes import load_integers, store_integers
from core.kernels.layout import advance, left_in_row, locate, unpacked
from core.kernels.processor import prefer_wide_vectors
from core.kernels.requantize import Requirement
from core.kernels.vector_fixed_point import wrap_int32
from core.kernels.vector_memory import load_first
from core.kernels.vectors import (
    LANES,
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


class FloatRule(IntEnum):
    """Which arithmetic. The offset is a second parameter, a float."""

    F32_EVEN = 0
    """RNE(f32(f32(v) * factor)) + z_out."""

    F32_OFFSET = 1
    """RNE(f32(f32(f32(v) * factor) + offset)). To clamp to integers before rounding or after it is the same."""

    F64_EVEN_OFFSET = 2
    """RNE(f64(f64(f64(v) * factor) + offset))."""

    F64_AWAY = 3
    """RNA(f64(f64(v) * factor)) + z_out."""


_F32_EVEN = int(FloatRule.F32_EVEN)
_F32_OFFSET = int(FloatRule.F32_OFFSET)
_F64_EVEN_OFFSET = int(FloatRule.F64_EVEN_OFFSET)
_VALUE, _SCALED, _SUM = (int(each) for each in Requirement)


@device
def _scale(rule: int, value: Number, factor: Number, offset: Number) -> Number:
    """The rounded y without z_out, as f64. `value`: integers, as int64, or as f64 that are exact."""
    if rule == _F32_EVEN:
        return convert(half_even(convert(value, np.float32) * convert(factor, np.float32)), np.float64)
    if rule == _F32_OFFSET:
        product = convert(value, np.float32) * convert(factor, np.float32)
        return convert(half_even(product + convert(offset, np.float32)), np.float64)
    if rule == _F64_EVEN_OFFSET:
        return half_even(convert(value, np.float64) * factor + offset)
    return half_away(convert(value, np.float64) * factor)


def _requantize(checked: bool) -> Kernel:
    @kernel(
        (
            readable(types.uint8),  # source, as bytes
            writable(types.uint8),  # target, as bytes
            types.int64,  # start: index of source[0] in the whole tensor
            types.int64,  # how many elements there are
            readable(types.int64),  # core.kernels.layout.unpacked
            readable(types.float64),  # factors, one for each parameter
            readable(types.float64),  # offsets, likewise
            readable(types.int64),  # widths of v 0..62, likewise
            readable(types.int64),  # zero points of the source, likewise
            readable(types.int64),  # zero points of the target, likewise
            readable(types.int64),  # rules, by core.kernels.requantize.Field; none wraps
            readable(types.float64),  # bounds, as in core.kernels.requantize
            writable(types.int64),  # counts, likewise
        )
    )
    def requantize(
        source: Array,
        target: Array,
        start: Number,
        size: Number,
        numbers: Array,
        factors: Array,
        offsets: Array,
        widths: Array,
        zeros_in: Array,
        zeros_out: Array,
        rules: Array,
        bounds: Array,
        counts: Array,
    ) -> None:
        prefer_wide_vectors()
        rule, source_bytes, signed, target_bytes = rules[0], rules[1], rules[2] != 0, rules[3]
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
            factor = splat(factors[parameter])
            offset = splat(offsets[parameter])
            width = splat(widths[parameter])
            zero_in = splat(zeros_in[parameter])
            zero_out = splat(zeros_out[parameter])
            for i in range(done, end, LANES):
                valid = first(end - i)
                if cycle:
                    at = parameter + (i - done)
                    factor = load_first(factors, at, valid)
                    offset = load_first(offsets, at, valid)
                    zero_in = load_first(zeros_in, at, valid)
                    zero_out = load_first(zeros_out, at, valid)
                stored = load_integers(source, i, valid, source_bytes, signed)
                # Where q - z_in passes int64 it wraps to the other end, and no width reaches there either.
                value = stored - zero_in
                if checked:
                    scaled = _scale(rule, value, factor, offset)
                else:
                    # What fits int32 becomes a float by one instruction. The difference is exact in f64.
                    exact = convert(wrap_int32(stored), np.float64) - convert(wrap_int32(zero_in), np.float64)
                    scaled = _scale(rule, exact, factor, offset)
                summed = scaled + convert(zero_out, np.float64)
                if checked:
                    if cycle:
                        width = load_first(widths, parameter + (i - done), valid)
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


REQUANTIZE_FLOAT = _requantize(checked=False)
"""The kernel for tensors of which it is proved that every element is defined, with sources of up to 32 bits."""

REQUANTIZE_FLOAT_CHECKED = _requantize(checked=True)
"""The kernel that checks every element."""
