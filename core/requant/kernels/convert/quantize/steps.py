"""The steps of `requant.kernels.convert.quantize.general` on vectors: the value that is rounded, and the integer that
it becomes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from requant.formats.rules import Overflow, Quotient
from requant.kernels.convert.quantize.rules import Addition
from requant.kernels.jit.jit import Number, device
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.rounding import nearest_integers, round_to_precision
from requant.kernels.simd.vector import Vector
from requant.kernels.simd.vectors import clamp, convert, multiply_add, select, splat

_DIVISION, _FUSED = Quotient.DIVISION.code, Quotient.FUSED.code
_BEFORE = int(Addition.BEFORE)
_INDEFINITE, _INDEFINITE_BELOW = Overflow.INDEFINITE.code, Overflow.INDEFINITE_BELOW.code
_NATIVE = int(Precision.NATIVE)
_INT32_MINIMUM = -2147483648.0
_LARGEST_F32_IN_INT32 = 2147483520.0
# Beyond all bounds, with room for a zero point in the integer.
_FAR_NARROW = np.float32(1 << 21)
_FAR_WIDE = np.float64(1 << 40)


@device
def _integer_narrow(rounded: Number, zero: Number, fits: Number, overflow: int) -> Number:
    """The integral f32 plus z in int32. What is far is as far as any bound; NaN gives anything."""
    if overflow == _INDEFINITE:
        return convert(select(fits, rounded, splat(np.float32(_INT32_MINIMUM))), np.int32) + zero
    if overflow == _INDEFINITE_BELOW:
        lowest, highest = splat(np.float32(_INT32_MINIMUM)), splat(np.float32(_LARGEST_F32_IN_INT32))
        return convert(clamp(rounded, lowest, highest), np.int32) + zero
    near = clamp(rounded, splat(-_FAR_NARROW), splat(_FAR_NARROW))
    return nearest_integers(near) + zero


@device
def _integer_wide(rounded: Number, zero: Number, fits: Number, overflow: int) -> Number:
    """The same for f64 and int64."""
    if overflow == _INDEFINITE:
        converted = convert(convert(select(fits, rounded, splat(_INT32_MINIMUM)), np.int32), np.int64)
        # Cutting the sum to 32 bits is what wraps it.
        return convert(convert(converted + zero, np.int32), np.int64)
    if overflow == _INDEFINITE_BELOW:
        clipped = clamp(rounded, splat(_INT32_MINIMUM), splat(_LARGEST_F32_IN_INT32))
        return convert(convert(nearest_integers(clipped) + zero, np.int32), np.int64)
    near = clamp(rounded, splat(-_FAR_WIDE), splat(_FAR_WIDE))
    return nearest_integers(near) + zero


def settled(rounded: Number, zero: Number, fits: Number, overflow: int) -> Number:
    """The integer: of an f32 in int32, of an f64 in int64. `fits`: where int32 holds it; `overflow`: an Overflow."""
    raise NotImplementedError("for kernels only")


@overload(settled, strict=False)
def _chosen_integer(rounded: Vector, zero: Any, fits: Any, overflow: Any) -> Callable[..., Number]:
    if rounded.element is types.float32:
        return lambda rounded, zero, fits, overflow: _integer_narrow(rounded, zero, fits, overflow)
    return lambda rounded, zero, fits, overflow: _integer_wide(rounded, zero, fits, overflow)


@device
def value_f32(x: Number, factor: Number, addend: Number, steps: tuple[int, int, int]) -> Number:
    """What is rounded, in f32 lanes. `steps`: QUOTIENT, PRECISION, ADDITION."""
    quotient, precision, addition = steps
    if quotient == _FUSED:
        return multiply_add(x, factor, addend)
    value = x / factor if quotient == _DIVISION else x * factor
    if precision != _NATIVE:
        value = round_to_precision(value, precision)
    if addition == _BEFORE:
        value = value + addend
        if precision != _NATIVE:
            value = round_to_precision(value, precision)
    return value


@device
def value_f64(x: Number, factor: Number, addend: Number, steps: tuple[int, int, int]) -> Number:
    """What is rounded, in f64 lanes."""
    quotient, _, addition = steps
    if quotient == _FUSED:
        return multiply_add(x, factor, addend)
    value = x / factor if quotient == _DIVISION else x * factor
    return value + addend if addition == _BEFORE else value
