"""Kernels from f32 to integers, for every layout and storage. Formulas: spec/numerics.md A.3, C.6; spec/mlir.md 4.4.

A rule is a function of one element, `(x, scale, zero_point, minimum, maximum) -> (stored, low, high)`, where low and
high say that the integer which the arithmetic gives before it is clamped lies below or above the storage bounds. One
loop carries them all. 8- and 16-bit storage stays in 32-bit lanes, where every bound is exact in f32; 32-bit storage
has rules of its own with the bounds in f64.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import types

from core.kernels._jit import Array, Kernel, Number, device, kernel, readable, writable
from core.kernels.layout import first_parameter, piece_length
from core.kernels.rounding import round_half_away, round_half_even


class QuantizeRule(IntEnum):
    """The element rules, named by what sets them apart."""

    EVEN_BEFORE = 0
    """RNE(clamp(x / s + z)), the zero point added in f32; NaN gives 0. StableHLO."""

    EVEN_AFTER = 1
    """clamp(RNE(x / s) + z); NaN gives the lowest value. ONNX."""

    AWAY_INDEFINITE = 2
    """clamp(int32(RNA(x / s)) + z) with x86's conversion and a wrapping addition. LiteRT's reference kernel."""


_EVEN_BEFORE = int(QuantizeRule.EVEN_BEFORE)
_EVEN_AFTER = int(QuantizeRule.EVEN_AFTER)

_INT32_MINIMUM = np.float32(-2147483648.0)
_BEYOND_INT32 = np.float32(2147483648.0)
_INT32_MAXIMUM = 2147483647.0


@device
def _clamp(value: Number, lowest: Number, highest: Number) -> Number:
    """min(max(value, lowest), highest), with NaN taking the lowest: its comparisons are false."""
    above = value if value > lowest else lowest
    return above if above < highest else highest


@device
def _even_before(x: Number, scale: Number, zero_point: Number, minimum: Number, maximum: Number) -> Number:
    # Rounding before the clamp instead of after it: the same, since the bounds are integers.
    value = round_half_even(x / scale + np.float32(zero_point))
    lowest = np.float32(minimum)
    highest = np.float32(maximum)
    stored = np.int32(_clamp(value, lowest, highest))
    return stored if value == value else np.int32(0), value < lowest, value > highest


@device
def _even_before_wide(x: Number, scale: Number, zero_point: Number, minimum: Number, maximum: Number) -> Number:
    # The clamp is in f32, so its upper bound can be one that int32 does not hold (2^31); the conversion saturates.
    value = round_half_even(x / scale + np.float32(zero_point))
    exact = np.float64(value)
    clamped = np.float64(_clamp(value, np.float32(minimum), np.float32(maximum)))
    stored = np.int32(min(clamped, _INT32_MAXIMUM))
    return stored if value == value else np.int32(0), exact < np.float64(minimum), exact > np.float64(maximum)


@device
def _even_after(x: Number, scale: Number, zero_point: Number, minimum: Number, maximum: Number) -> Number:
    value = round_half_even(x / scale)
    lowest = np.float32(np.int32(minimum - zero_point))
    highest = np.float32(np.int32(maximum - zero_point))
    stored = np.int32(np.int32(_clamp(value, lowest, highest)) + zero_point)
    return stored, value < lowest, value > highest


@device
def _even_after_wide(x: Number, scale: Number, zero_point: Number, minimum: Number, maximum: Number) -> Number:
    # A rounded f32 plus an int32 is exact in f64 wherever the sum is near the bounds.
    value = np.float64(round_half_even(x / scale)) + np.float64(zero_point)
    lowest = np.float64(minimum)
    highest = np.float64(maximum)
    return np.int32(_clamp(value, lowest, highest)), value < lowest, value > highest


@device
def _away_indefinite(x: Number, scale: Number, zero_point: Number, minimum: Number, maximum: Number) -> Number:
    value = round_half_away(x / scale)
    fits = (value >= _INT32_MINIMUM) & (value < _BEYOND_INT32)
    converted = np.int32(value if fits else _INT32_MINIMUM)
    total = np.int32(converted + zero_point)
    known = value == value
    # What did not fit and is not clamped (32-bit storage has nothing to clamp) counts as low, as -2^31 is.
    low = (total < minimum) | (~fits & (total <= maximum))
    stored = np.int32(min(max(total, minimum), maximum))
    return stored, low & known, (total > maximum) & known


def _quantize(rule: QuantizeRule, cycle: bool, wide: bool) -> Kernel:
    # Enumeration members are no constants to numba; plain integers and booleans are, and their branches vanish.
    rule_number = int(rule)
    storages = (types.int32,) if wide else (types.int8, types.uint8, types.int16, types.uint16)

    @kernel(
        *(
            (
                readable(types.float32),  # source
                writable(storage),  # target
                types.int64,  # start: index of source[0] in the whole tensor
                types.int64,  # run     \
                types.int64,  # channels | core.kernels.layout
                types.int64,  # group    |
                types.int64,  # groups  /
                readable(types.float32),  # scales, one for each parameter
                readable(types.int32),  # zero points, one for each parameter
                types.int32,  # minimum
                types.int32,  # maximum
                writable(types.int64),  # counts, added to: saturated low, saturated high, NaN
            )
            for storage in storages
        )
    )
    def quantize(
        source: Array,
        target: Array,
        start: Number,
        run: Number,
        channels: Number,
        group: Number,
        groups: Number,
        scales: Array,
        zero_points: Array,
        minimum: Number,
        maximum: Number,
        counts: Array,
    ) -> None:
        done = 0
        while done < source.size:
            element = start + done
            length = piece_length(source.size - done, element, run, channels, cycle)
            parameter = first_parameter(element, run, channels, group, groups, cycle)
            # Slices, because an index that numba cannot prove to be positive keeps the loop from vectorizing.
            inputs = source[done : done + length]
            outputs = target[done : done + length]
            piece_scales = scales[parameter:]
            piece_zero_points = zero_points[parameter:]
            scale = scales[parameter]
            zero_point = zero_points[parameter]
            low = np.int32(0)
            high = np.int32(0)
            missing = np.int32(0)
            for i in range(inputs.size):
                if cycle:
                    scale = piece_scales[i]
                    zero_point = piece_zero_points[i]
                x = inputs[i]
                if rule_number == _EVEN_BEFORE:
                    if wide:
                        stored, is_low, is_high = _even_before_wide(x, scale, zero_point, minimum, maximum)
                    else:
                        stored, is_low, is_high = _even_before(x, scale, zero_point, minimum, maximum)
                elif rule_number == _EVEN_AFTER:
                    if wide:
                        stored, is_low, is_high = _even_after_wide(x, scale, zero_point, minimum, maximum)
                    else:
                        stored, is_low, is_high = _even_after(x, scale, zero_point, minimum, maximum)
                else:
                    stored, is_low, is_high = _away_indefinite(x, scale, zero_point, minimum, maximum)
                outputs[i] = stored
                low = np.int32(low + np.int32(is_low))
                high = np.int32(high + np.int32(is_high))
                missing = np.int32(missing + np.int32(x != x))
            counts[0] += low
            counts[1] += high
            counts[2] += missing
            done += length

    return quantize


QUANTIZE: dict[tuple[QuantizeRule, bool, bool], Kernel] = {
    (rule, cycle, wide): _quantize(rule, cycle, wide)
    for rule in QuantizeRule
    for cycle in (False, True)
    for wide in (False, True)
}
"""The kernel for (rule, whether the layout is a cycle, whether the storage has 32 bits)."""
