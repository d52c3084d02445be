"""Kernels from integers to integers by multiplier and shift, for every layout and storage. Formulas: spec/numerics.md
C.5, D; spec/mlir.md 5.3.

    v = q - z_in ;  y = multiply(v, multiplier, shift) ;  clamp(y + z_out, minimum, maximum)

`v`, `y` and `y + z_out` must be what the scheme is defined for. Where a plan has proved that they are for every q that
the storage holds, nothing is checked; else the first element for which they are not is reported, with what failed.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import types

from core.kernels._jit import Array, Kernel, Number, device, kernel, readable, writable
from core.kernels.integer_lanes import load_integers, store_integers
from core.kernels.layout import advance, left_in_row, locate, unpacked
from core.kernels.processor import prefer_wide_vectors
from core.kernels.vector_fixed_point import (
    multiply_double_rounding,
    multiply_double_rounding_up,
    multiply_tosa_double_rounding,
    rounding_shift_away,
    rounding_shift_right,
    wrap_int32,
)
from core.kernels.vector_memory import load_first
from core.kernels.vectors import (
    LANES,
    convert,
    first,
    first_of,
    larger,
    smaller,
    some,
    splat,
    total,
    zero_like,
)


class FixedPointRule(IntEnum):
    """Which multiplication. The shift is a right shift s of the whole product, 31 - shift in LiteRT's convention."""

    DOUBLE = 0
    """Two roundings: RDBPOT(SRDHM(wrap32(v * 2^max(31-s, 0)), m), max(s-31, 0))."""

    DOUBLE_UP = 1
    """The same with both roundings up."""

    NEAREST_UP = 2
    """One rounding, ties toward plus infinity: floor((v*m + 2^(s-1)) / 2^s)."""

    NEAREST_AWAY = 3
    """One rounding, ties away from zero: RNA(v*m / 2^s)."""

    TOSA_DOUBLE = 4
    """NEAREST_UP; where s > 31, with 2^30 added first if v >= 0, and subtracted if v < 0."""


class Requirement(IntEnum):
    """What a scheme demands of an element; `counts[4]` says which of them failed."""

    VALUE = 0
    """-2^width <= v < 2^width, the width one of the parameters."""
    SCALED = 1
    """Bounds of y."""
    SUM = 2
    """Bounds of y + z_out."""


class Field(IntEnum):
    """Where each choice stands in the kernels' `rules`."""

    RULE = 0
    SOURCE_BYTES = 1
    """Those of an element of the source."""
    SOURCE_SIGNED = 2
    TARGET_BYTES = 3
    WRAPS = 4
    """Whether y + z_out wraps in int32."""


_DOUBLE = int(FixedPointRule.DOUBLE)
_DOUBLE_UP = int(FixedPointRule.DOUBLE_UP)
_NEAREST_AWAY = int(FixedPointRule.NEAREST_AWAY)
_TOSA_DOUBLE = int(FixedPointRule.TOSA_DOUBLE)
_VALUE, _SCALED, _SUM = (int(each) for each in Requirement)


@device
def _scale(rule: int, value: Number, multiplier: Number, shift: Number) -> Number:
    if rule == _DOUBLE:
        return multiply_double_rounding(value, multiplier, shift)
    if rule == _DOUBLE_UP:
        return multiply_double_rounding_up(value, multiplier, shift)
    if rule == _NEAREST_AWAY:
        return rounding_shift_away(value * multiplier, shift)
    if rule == _TOSA_DOUBLE:
        return multiply_tosa_double_rounding(value, multiplier, shift)
    return rounding_shift_right(value * multiplier, shift)


def _requantize(checked: bool) -> Kernel:
    @kernel(
        (
            readable(types.uint8),  # source, as bytes
            writable(types.uint8),  # target, as bytes
            types.int64,  # start: index of source[0] in the whole tensor
            types.int64,  # how many elements there are
            readable(types.int64),  # core.kernels.layout.unpacked
            readable(types.int64),  # multipliers, one for each parameter
            readable(types.int64),  # right shifts 0..62, likewise
            readable(types.int64),  # widths of v 0..62, likewise
            readable(types.int64),  # zero points of the source, likewise
            readable(types.int64),  # zero points of the target, likewise
            readable(types.int64),  # rules, by Field
            readable(types.int64),  # bounds: minimum, maximum, lowest y, highest y, lowest y + z_out, highest y + z_out
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
        multipliers: Array,
        shifts: Array,
        widths: Array,
        zeros_in: Array,
        zeros_out: Array,
        rules: Array,
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
        low, high = zero_like(minimum), zero_like(minimum)
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
                    zero_in = load_first(zeros_in, at, valid)
                    zero_out = load_first(zeros_out, at, valid)
                # Where q - z_in passes int64 it wraps to the other end, and no width reaches there either.
                value = load_integers(source, i, valid, source_bytes, signed) - zero_in
                if checked:
                    scaled = _scale(rule, value, multiplier, shift)
                else:
                    # Both factors fit int32, which LLVM sees in this, and multiplies them as such.
                    scaled = _scale(rule, wrap_int32(value), wrap_int32(multiplier), shift)
                summed = scaled + zero_out
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
                    if wraps:
                        summed = wrap_int32(summed)
                low = low - convert(valid & (summed < minimum), np.int64)
                high = high - convert(valid & (summed > maximum), np.int64)
                store_integers(target, i, smaller(larger(summed, minimum), maximum), valid, target_bytes)
            done = end
        counts[0] += total(low)
        counts[1] += total(high)
        if counts[3] < 0 and undefined >= 0:
            counts[3] = undefined
            counts[4] = requirement

    return requantize


REQUANTIZE = _requantize(checked=False)
"""The kernel for tensors of which it is proved that every element is defined, and that v and multipliers fit int32."""

REQUANTIZE_CHECKED = _requantize(checked=True)
"""The kernel that checks every element."""
