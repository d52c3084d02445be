"""The general kernel from floats to integers: every combination of rules, one element at a time.

What `core.kernels.quantize` is not specialised for goes through here, and so does every override. The rules are
numbers that the loop looks at for each element; the source is f32 (f16 and bf16 arrive widened) or f64; the target is
int64, to be narrowed by the caller. Formulas: spec/numerics.md A.3, B.2, C.6, E.1; spec/mlir.md 3.2, 4.2.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import types

from core.kernels._jit import Array, Kernel, Number, device, kernel, readable, writable
from core.kernels.fixed_point import wrap_int32
from core.kernels.layout import first_parameter, piece_length
from core.kernels.rounding import Rounding, draw, fused_multiply_add, round_by, round_to_precision


class Field(IntEnum):
    """Where each rule stands in the kernel's `rules`."""

    QUOTIENT = 0
    PRECISION = 1
    BEFORE = 2
    ROUNDING = 3
    OVERFLOW = 4
    MISSING = 5
    SEED = 6


class Quotient(IntEnum):
    """x / s, x * r, or fma(x, r, z), with r the reciprocal that the caller computed."""

    DIVISION = 0
    RECIPROCAL = 1
    FUSED = 2


class Overflow(IntEnum):
    """What becomes of an integer outside of the bounds."""

    SATURATE = 0
    """Clamped. With the zero point added before rounding, in the float type, then saturated to the storage type."""
    INDEFINITE = 1
    """Conversion to int32 gives -2^31 for what does not fit, the zero point is added wrapping, then clamped."""
    UNDEFINED = 2
    """An error unless it fits the storage type; then clamped to narrower bounds."""
    FLOAT_CLAMP = 3
    """The zero point is added and the bounds are applied in the float type; then converted as INDEFINITE."""


class Missing(IntEnum):
    """What becomes of NaN."""

    STORED = 0
    """A given stored value."""
    ZERO_POINT = 1
    INDEFINITE = 2
    """What the conversion makes of it: -2^31, and the zero point added."""
    UNDEFINED = 3


_RECIPROCAL, _FUSED = int(Quotient.RECIPROCAL), int(Quotient.FUSED)
_SATURATE, _INDEFINITE, _UNDEFINED = int(Overflow.SATURATE), int(Overflow.INDEFINITE), int(Overflow.UNDEFINED)
_MISSING_STORED, _MISSING_ZERO_POINT = int(Missing.STORED), int(Missing.ZERO_POINT)
_MISSING_INDEFINITE, _MISSING_UNDEFINED = int(Missing.INDEFINITE), int(Missing.UNDEFINED)
_STOCHASTIC = int(Rounding.STOCHASTIC)

# Beyond any bound, and exact in f64 and int64 with room for a zero point.
_FAR = 4611686018427387904.0


@device
def _to_int32_as_x86(value: Number) -> Number:
    """The integral `value` as int32, -2^31 for what does not fit and for NaN."""
    fits = (value >= -2147483648.0) & (value < 2147483648.0)
    return np.int64(value if fits else -2147483648.0)


@device
def _to_integer(value: Number) -> Number:
    """The integral `value`, as far as it is from every bound that there can be."""
    return np.int64(min(max(value, -_FAR), _FAR))


def _quantize_any(real: types.Type) -> Kernel:
    in_f32 = real is types.float32

    @kernel(
        (
            readable(real),  # source
            writable(types.int64),  # target
            types.int64,  # start: index of source[0] in the whole tensor
            types.int64,  # run     \
            types.int64,  # channels | core.kernels.layout
            types.int64,  # group    |
            types.int64,  # groups  /
            readable(real),  # scales
            readable(real),  # reciprocals of the scales
            readable(real),  # zero points in the float type
            readable(types.int64),  # zero points
            readable(types.int64),  # rules, by Field
            readable(types.int64),  # minimum, maximum, lowest and highest of the storage type, stored value of NaN
            readable(real),  # minimum and maximum in the float type
            writable(types.int64),  # counts: saturated low, saturated high, NaN, first undefined element or -1
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
        reciprocals: Array,
        real_zero_points: Array,
        zero_points: Array,
        rules: Array,
        bounds: Array,
        real_bounds: Array,
        counts: Array,
    ) -> None:
        quotient, precision, before = rules[0], rules[1], rules[2] != 0
        rounding, overflow, missing, seed = rules[3], rules[4], rules[5], rules[6]
        minimum, maximum, lowest, highest, stored_nan = bounds[0], bounds[1], bounds[2], bounds[3], bounds[4]
        done = 0
        while done < source.size:
            element = start + done
            length = piece_length(source.size - done, element, run, channels, False)
            parameter = first_parameter(element, run, channels, group, groups, False)
            scale, reciprocal = scales[parameter], reciprocals[parameter]
            real_zero_point, zero_point = real_zero_points[parameter], zero_points[parameter]
            for i in range(done, done + length):
                x = source[i]
                if quotient == _FUSED:
                    value = fused_multiply_add(x, reciprocal, real_zero_point)
                else:
                    value = x * reciprocal if quotient == _RECIPROCAL else x / scale
                    if in_f32:
                        value = round_to_precision(value, precision)
                    if before:
                        value = value + real_zero_point
                        if in_f32:
                            value = round_to_precision(value, precision)
                defined = True
                low: Number = False
                high: Number = False
                if value != value and missing != _MISSING_INDEFINITE:
                    counts[2] += 1
                    stored = stored_nan if missing == _MISSING_STORED else zero_point
                    defined = missing != _MISSING_UNDEFINED
                else:
                    rounded = round_by(rounding, value, draw(seed, start + i) if rounding == _STOCHASTIC else 0)
                    exact = np.float64(rounded)
                    if overflow == _INDEFINITE:
                        converted = _to_int32_as_x86(exact)
                        total = wrap_int32(converted + (0 if before else zero_point))
                        low = total < minimum
                        high = total > maximum
                        if not low and not high and (exact < -2147483648.0 or exact >= 2147483648.0):
                            low = True
                        stored = min(max(total, minimum), maximum)
                    elif overflow == _UNDEFINED:
                        total = _to_integer(exact) + (0 if before else zero_point)
                        defined = (total >= lowest) & (total <= highest)
                        low = total < minimum
                        high = total > maximum
                        stored = min(max(total, minimum), maximum)
                    elif overflow == _SATURATE and not before:
                        total = _to_integer(exact) + zero_point
                        low = total < minimum
                        high = total > maximum
                        stored = min(max(total, minimum), maximum)
                    else:
                        if not before:
                            rounded = rounded + real_zero_point
                        exact = np.float64(rounded)
                        low = exact < np.float64(minimum)
                        high = exact > np.float64(maximum)
                        clamped = min(max(exact, np.float64(real_bounds[0])), np.float64(real_bounds[1]))
                        if overflow == _SATURATE:
                            stored = min(max(_to_integer(clamped), lowest), highest)
                        else:
                            stored = _to_int32_as_x86(clamped) if highest > 65535 else _to_integer(clamped)
                    if value != value:
                        counts[2] += 1
                        low = False
                        high = False
                if not defined and counts[3] < 0:
                    counts[3] = start + i
                counts[0] += low
                counts[1] += high
                target[i] = stored
            done += length

    return quantize


QUANTIZE_ANY: dict[str, Kernel] = {"<f4": _quantize_any(types.float32), "<f8": _quantize_any(types.float64)}
"""The kernel for sources of f32 and of f64."""
