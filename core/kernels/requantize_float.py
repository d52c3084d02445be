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
from core.kernels.layout import first_parameter, piece_length
from core.kernels.requantize import Requirement, layout_types
from core.kernels.rounding import round_half_away, round_half_even


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
def _scale(rule_number: int, value: Number, factor: Number, offset: Number) -> Number:
    """The rounded y without z_out, as an f64. `value`: an integer, as an int64 or as an f64 that is exact."""
    if rule_number == _F32_EVEN:
        return np.float64(round_half_even(np.float32(value) * np.float32(factor)))
    if rule_number == _F32_OFFSET:
        return np.float64(round_half_even(np.float32(value) * np.float32(factor) + np.float32(offset)))
    if rule_number == _F64_EVEN_OFFSET:
        return round_half_even(np.float64(value) * factor + offset)
    return round_half_away(np.float64(value) * factor)


def _proved(rule: FloatRule, cycle: bool) -> Kernel:
    rule_number = int(rule)

    @kernel(
        *(
            (
                readable(types.int32),  # source
                writable(storage),  # target; unsigned storage is viewed as signed
                # factors, offsets, zero points of the source, zero points of the target
                *layout_types([types.float64] * 4),
                types.float64,  # minimum
                types.float64,  # maximum
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
        factors: Array,
        offsets: Array,
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
            piece_factors = factors[parameter:]
            piece_offsets = offsets[parameter:]
            piece_zeros_in = zeros_in[parameter:]
            piece_zeros_out = zeros_out[parameter:]
            factor = factors[parameter]
            offset = offsets[parameter]
            zero_in = zeros_in[parameter]
            zero_out = zeros_out[parameter]
            low = np.int32(0)
            high = np.int32(0)
            for i in range(inputs.size):
                if cycle:
                    factor = piece_factors[i]
                    offset = piece_offsets[i]
                    zero_in = piece_zeros_in[i]
                    zero_out = piece_zeros_out[i]
                # The difference of two integers of 33 bits is exact in f64.
                value = np.float64(inputs[i]) - zero_in
                y = _scale(rule_number, value, factor, offset) + zero_out
                low += np.int32(y < minimum)
                high += np.int32(y > maximum)
                outputs[i] = np.int32(min(max(y, minimum), maximum))
            counts[0] += low
            counts[1] += high
            done += length

    return requantize


def _checked(rule: FloatRule) -> Kernel:
    rule_number = int(rule)

    @kernel(
        (
            readable(types.int64),  # source
            writable(types.int32),  # target: the low 32 bits
            # factors, offsets, widths of v 0..62, zero points of the source, zero points of the target
            *layout_types([types.float64, types.float64, types.int64, types.int64, types.int64]),
            types.float64,  # lowest y
            types.float64,  # highest y
            types.float64,  # lowest y + z_out
            types.float64,  # highest y + z_out
            types.float64,  # minimum
            types.float64,  # maximum
            writable(types.int64),  # counts: low, high, -, index of the first undefined element or -1, its Requirement
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
        factors: Array,
        offsets: Array,
        widths: Array,
        zeros_in: Array,
        zeros_out: Array,
        lowest: Number,
        highest: Number,
        lowest_sum: Number,
        highest_sum: Number,
        minimum: Number,
        maximum: Number,
        counts: Array,
    ) -> None:
        for i in range(source.size):
            element = start + i
            parameter = first_parameter(element, run, channels, group, groups, False)
            # Where q - z_in passes int64 it wraps to the other end, and no width reaches there either.
            value = source[i] - zeros_in[parameter]
            bound = np.int64(1) << widths[parameter]
            y = _scale(rule_number, value, factors[parameter], offsets[parameter])
            total = y + np.float64(zeros_out[parameter])
            if counts[3] < 0:
                if value < -bound or value >= bound:
                    counts[3], counts[4] = element, _VALUE
                elif y < lowest or y > highest:
                    counts[3], counts[4] = element, _SCALED
                elif total < lowest_sum or total > highest_sum:
                    counts[3], counts[4] = element, _SUM
            counts[0] += total < minimum
            counts[1] += total > maximum
            target[i] = np.int64(min(max(total, minimum), maximum))

    return requantize


REQUANTIZE_FLOAT: dict[tuple[FloatRule, bool], Kernel] = {
    (rule, cycle): _proved(rule, cycle) for rule in FloatRule for cycle in (False, True)
}
"""The kernel without checks for (rule, whether the layout is a cycle)."""

REQUANTIZE_FLOAT_CHECKED: dict[FloatRule, Kernel] = {rule: _checked(rule) for rule in FloatRule}
"""The kernel with checks for a rule. It knows no cycles."""
