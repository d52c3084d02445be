"""Kernels from integers to integers by multiplier and shift, for every layout and storage. Formulas: spec/numerics.md
C.5, D; spec/mlir.md 5.3.

    v = q - z_in ;  y = multiply(v, multiplier, shift) ;  clamp(y + z_out, minimum, maximum)

`v`, `y` and `y + z_out` must be what the scheme is defined for. Where a plan has proved that they are for every q that
the storage holds, nothing is checked; else the first element for which they are not is reported, with what failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numba import types

from core.kernels._jit import Array, Kernel, Number, device, kernel, readable, writable
from core.kernels.fixed_point import (
    multiply_double_rounding,
    multiply_double_rounding_up,
    multiply_single_rounding,
    rounding_shift_away,
    wrap_int32,
)
from core.kernels.layout import first_parameter, piece_length


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


_DOUBLE = int(FixedPointRule.DOUBLE)
_DOUBLE_UP = int(FixedPointRule.DOUBLE_UP)
_NEAREST_AWAY = int(FixedPointRule.NEAREST_AWAY)
_TOSA_DOUBLE = int(FixedPointRule.TOSA_DOUBLE)
_VALUE, _SCALED, _SUM = (int(each) for each in Requirement)


@device
def _scale(rule_number: int, value: Number, multiplier: Number, shift: Number) -> Number:
    if rule_number == _DOUBLE:
        return multiply_double_rounding(value, multiplier, max(31 - shift, 0), max(shift - 31, 0))
    if rule_number == _DOUBLE_UP:
        return multiply_double_rounding_up(value, multiplier, max(31 - shift, 0), max(shift - 31, 0))
    if rule_number == _NEAREST_AWAY:
        return rounding_shift_away(value * multiplier, shift)
    if rule_number == _TOSA_DOUBLE:
        # 2^30 away from zero in the product is the first of the two roundings, and only there when s > 31.
        first: Number = np.int64(shift > 31) << 30
        return multiply_single_rounding(value, multiplier, shift, first if value >= 0 else -first)
    return multiply_single_rounding(value, multiplier, shift, 0)


def layout_types(parameters: Sequence[types.Type]) -> tuple[types.Type, ...]:
    """The types of the arguments that place elements, and of one array for each kind of parameter."""
    return (
        types.int64,  # start: index of source[0] in the whole tensor
        types.int64,  # run     \
        types.int64,  # channels | core.kernels.layout
        types.int64,  # group    |
        types.int64,  # groups  /
        *(readable(parameter) for parameter in parameters),
    )


def _proved(rule: FixedPointRule, cycle: bool) -> Kernel:
    # Enumeration members are no constants to numba; plain integers are, and their branches vanish.
    rule_number = int(rule)

    @kernel(
        *(
            (
                readable(types.int32),  # source
                writable(storage),  # target; unsigned storage is viewed as signed
                # multipliers, right shifts 0..62, zero points of the source, zero points of the target
                *layout_types([types.int32] * 4),
                types.int64,  # minimum
                types.int64,  # maximum
                writable(types.int64),  # counts, added to: low, high
            )
            for storage in (types.int8, types.int16, types.int32)
        )
    )
    def requantize(
        source: Array,
        target: Array,
        start: Number,
        run: Number,
        channels: Number,
        group: Number,
        groups: Number,
        multipliers: Array,
        shifts: Array,
        zeros_in: Array,
        zeros_out: Array,
        minimum: Number,
        maximum: Number,
        counts: Array,
    ) -> None:
        done = 0
        while done < source.size:
            element = start + done
            length = piece_length(source.size - done, element, run, channels, cycle)
            parameter = first_parameter(element, run, channels, group, groups, cycle)
            inputs = source[done : done + length]
            outputs = target[done : done + length]
            piece_multipliers = multipliers[parameter:]
            piece_shifts = shifts[parameter:]
            piece_zeros_in = zeros_in[parameter:]
            piece_zeros_out = zeros_out[parameter:]
            multiplier = np.int64(multipliers[parameter])
            shift = np.int64(shifts[parameter])
            zero_in = np.int64(zeros_in[parameter])
            zero_out = np.int64(zeros_out[parameter])
            low = 0
            high = 0
            for i in range(inputs.size):
                if cycle:
                    multiplier = np.int64(piece_multipliers[i])
                    shift = np.int64(piece_shifts[i])
                    zero_in = np.int64(piece_zeros_in[i])
                    zero_out = np.int64(piece_zeros_out[i])
                y = _scale(rule_number, np.int64(inputs[i]) - zero_in, multiplier, shift) + zero_out
                low += y < minimum
                high += y > maximum
                outputs[i] = min(max(y, minimum), maximum)
            counts[0] += low
            counts[1] += high
            done += length

    return requantize


def _checked(rule: FixedPointRule, cycle: bool) -> Kernel:
    rule_number = int(rule)

    @kernel(
        *(
            (
                readable(storage),  # source
                writable(types.int32),  # target: the low 32 bits
                # multipliers, right shifts 0..62, widths of v 0..62, zero points of the source, of the target
                *layout_types([types.int64] * 5),
                types.int64,  # lowest y
                types.int64,  # highest y
                types.int64,  # lowest y + z_out
                types.int64,  # highest y + z_out
                types.int64,  # whether y + z_out wraps in int32
                types.int64,  # minimum
                types.int64,  # maximum
                writable(types.int64),  # counts, added to: low, high, -; index of the first undefined element, or -1;
                # its Requirement
            )
            for storage in (types.int32, types.int64)
        )
    )
    def requantize(
        source: Array,
        target: Array,
        start: Number,
        run: Number,
        channels: Number,
        group: Number,
        groups: Number,
        multipliers: Array,
        shifts: Array,
        widths: Array,
        zeros_in: Array,
        zeros_out: Array,
        lowest: Number,
        highest: Number,
        lowest_sum: Number,
        highest_sum: Number,
        wraps: Number,
        minimum: Number,
        maximum: Number,
        counts: Array,
    ) -> None:
        done = 0
        while done < source.size:
            element = start + done
            length = piece_length(source.size - done, element, run, channels, cycle)
            parameter = first_parameter(element, run, channels, group, groups, cycle)
            inputs = source[done : done + length]
            outputs = target[done : done + length]
            piece_multipliers = multipliers[parameter:]
            piece_shifts = shifts[parameter:]
            piece_widths = widths[parameter:]
            piece_zeros_in = zeros_in[parameter:]
            piece_zeros_out = zeros_out[parameter:]
            multiplier = multipliers[parameter]
            shift = shifts[parameter]
            width = widths[parameter]
            zero_in = zeros_in[parameter]
            zero_out = zeros_out[parameter]
            low = 0
            high = 0
            undefined = 0
            for i in range(inputs.size):
                if cycle:
                    multiplier = piece_multipliers[i]
                    shift = piece_shifts[i]
                    width = piece_widths[i]
                    zero_in = piece_zeros_in[i]
                    zero_out = piece_zeros_out[i]
                # Where q - z_in passes int64 it wraps to the other end, and no width reaches there either.
                value = np.int64(inputs[i]) - zero_in
                bound = np.int64(1) << width
                y = _scale(rule_number, value, multiplier, shift)
                total = y + zero_out
                fits = (value >= -bound) & (value < bound)
                fits &= (y >= lowest) & (y <= highest) & (total >= lowest_sum) & (total <= highest_sum)
                undefined += not fits
                total = wrap_int32(total) if wraps else total
                low += total < minimum
                high += total > maximum
                outputs[i] = min(max(total, minimum), maximum)
            counts[0] += low
            counts[1] += high
            if undefined > 0 and counts[3] < 0:
                for i in range(inputs.size):
                    c = parameter + i if cycle else parameter
                    value = np.int64(inputs[i]) - zeros_in[c]
                    bound = np.int64(1) << widths[c]
                    y = _scale(rule_number, value, multipliers[c], shifts[c])
                    total = y + zeros_out[c]
                    failed = -1
                    if total < lowest_sum or total > highest_sum:
                        failed = _SUM
                    if y < lowest or y > highest:
                        failed = _SCALED
                    if value < -bound or value >= bound:
                        failed = _VALUE
                    if failed >= 0:
                        counts[3] = start + done + i
                        counts[4] = failed
                        break
            done += length

    return requantize


REQUANTIZE: dict[tuple[FixedPointRule, bool], Kernel] = {
    (rule, cycle): _proved(rule, cycle) for rule in FixedPointRule for cycle in (False, True)
}
"""The kernel without checks for (rule, whether the layout is a cycle)."""

REQUANTIZE_CHECKED: dict[tuple[FixedPointRule, bool], Kernel] = {
    (rule, cycle): _checked(rule, cycle) for rule in FixedPointRule for cycle in (False, True)
}
"""The kernel with checks for (rule, whether the layout is a cycle)."""
