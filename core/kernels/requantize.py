"""Kernels from int32 to integers by multiplier and shift, for every layout and storage. Formulas: spec/numerics.md C.5,
D.5; spec/mlir.md 5.3.

    v = q - z_in ;  y = multiply(v, multiplier, shift) ;  clamp(y + z_out, minimum, maximum)

`v` and `y` must be what the scheme is defined for; the first element for which they are not is reported, never wrapped.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import types

from core.kernels._jit import Array, Kernel, Number, device, kernel, readable, writable
from core.kernels.fixed_point import multiply_double_rounding, multiply_single_rounding, wrap_int32
from core.kernels.layout import first_parameter, piece_length


class RequantizeRule(IntEnum):
    """Which multiplication, and which of its preconditions depend on the element.

    The shift is a right shift s: 31 - shift of LiteRT's convention, TOSA's own.
    """

    DOUBLE = 0
    """Two roundings; v in int32. A left shift (s < 31) wraps, and so does the addition of z_out: LiteRT's int32."""

    SINGLE = 1
    """One rounding; v and y in int32. The addition of z_out wraps: LiteRT's int32."""

    TOSA_DOUBLE = 2
    """Two roundings where s > 31, else one; -2^(s-1) <= v < 2^(s-1)."""

    TOSA_SINGLE = 3
    """One rounding; -2^(s-1) <= v < 2^(s-1)."""


_DOUBLE = int(RequantizeRule.DOUBLE)
_SINGLE = int(RequantizeRule.SINGLE)
_TOSA_DOUBLE = int(RequantizeRule.TOSA_DOUBLE)

_INT32_MINIMUM = -2147483648
_INT32_MAXIMUM = 2147483647


@device
def _scale(rule_number: int, value: Number, multiplier: Number, shift: Number) -> tuple[Number, Number]:
    """Return (y, whether the scheme is defined for this value)."""
    if rule_number == _DOUBLE:
        y = multiply_double_rounding(value, multiplier, max(31 - shift, 0), max(shift - 31, 0))
        return y, (value >= _INT32_MINIMUM) & (value <= _INT32_MAXIMUM)
    if rule_number == _SINGLE:
        y = multiply_single_rounding(value, multiplier, shift)
        fits = (value >= _INT32_MINIMUM) & (value <= _INT32_MAXIMUM)
        return y, fits & (y >= _INT32_MINIMUM) & (y <= _INT32_MAXIMUM)
    bound = 1 << (shift - 1)
    defined = (value >= -bound) & (value < bound)
    if rule_number == _TOSA_DOUBLE:
        # 2^30 away from zero in the product is the first of the two roundings, and only there when s > 31.
        first = np.int64(shift > 31) << 30
        product = value * multiplier + (first if value >= 0 else -first)
        return (product + bound) >> shift, defined
    return multiply_single_rounding(value, multiplier, shift), defined


def _requantize(rule: RequantizeRule, cycle: bool) -> Kernel:
    # Enumeration members are no constants to numba; plain integers are, and their branches vanish.
    rule_number = int(rule)
    wraps = rule in (RequantizeRule.DOUBLE, RequantizeRule.SINGLE)

    @kernel(
        *(
            (
                readable(types.int32),  # source
                writable(storage),  # target
                types.int64,  # start: index of source[0] in the whole tensor
                types.int64,  # run     \
                types.int64,  # channels | core.kernels.layout
                types.int64,  # group    |
                types.int64,  # groups  /
                readable(types.int32),  # multipliers, one for each parameter
                readable(types.int32),  # right shifts, one for each parameter: 0..62
                readable(types.int32),  # zero points of the source, one for each parameter
                readable(types.int32),  # zero points of the target, one for each parameter
                types.int64,  # minimum
                types.int64,  # maximum
                writable(
                    types.int64
                ),  # counts, added to: low, high, -; [3]: index of the first undefined element, or -1
            )
            for storage in (types.int8, types.uint8, types.int16, types.uint16, types.int32)
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
            undefined = 0
            for i in range(inputs.size):
                if cycle:
                    multiplier = np.int64(piece_multipliers[i])
                    shift = np.int64(piece_shifts[i])
                    zero_in = np.int64(piece_zeros_in[i])
                    zero_out = np.int64(piece_zeros_out[i])
                y, defined = _scale(rule_number, np.int64(inputs[i]) - zero_in, multiplier, shift)
                y += zero_out
                if wraps:
                    y = wrap_int32(y)
                low += y < minimum
                high += y > maximum
                undefined += not defined
                outputs[i] = min(max(y, minimum), maximum)
            counts[0] += low
            counts[1] += high
            if undefined > 0 and counts[3] < 0:
                for i in range(inputs.size):
                    c = parameter + i if cycle else parameter
                    value = np.int64(inputs[i]) - np.int64(zeros_in[c])
                    y, defined = _scale(rule_number, value, np.int64(multipliers[c]), np.int64(shifts[c]))
                    if not defined:
                        counts[3] = start + done + i
                        break
            done += length

    return requantize


REQUANTIZE: dict[tuple[RequantizeRule, bool], Kernel] = {
    (rule, cycle): _requantize(rule, cycle) for rule in RequantizeRule for cycle in (False, True)
}
"""The kernel for (rule, whether the layout is a cycle)."""
