"""PyTorch's C++ rule, which FBGEMM and dynamic quantization use.

Source: ATen QuantUtils.h ChooseQuantizationParams.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from requant.calibration.ranges.rule import (
    Array,
    RangeOptions,
    RangeParameters,
    RangeRule,
    StoredRange,
    integer_storage,
    parameters,
)
from requant.errors import PreconditionError, UnsupportedError
from requant.mlir.types import StorageType

_WIDEST_SPAN = (1 << 31) - 1
_SMALLEST_SCALE = np.float32(6.1e-5)
_LARGEST_SHIFT = 30


def _stored(storage: StorageType, options: RangeOptions) -> StoredRange:
    """Any bounds whose difference C++'s int holds; reduced halves both, toward zero."""
    integer_storage(storage, "torch")
    lowest, highest = storage.minimum, storage.maximum
    if highest - lowest > _WIDEST_SPAN:
        raise UnsupportedError(f"torch needs bounds that differ by at most {_WIDEST_SPAN}; write narrower ones")
    if options.reduced:
        lowest, highest = math.trunc(lowest / 2), math.trunc(highest / 2)
        if lowest >= highest:
            raise UnsupportedError("this storage has no values left when its range is reduced")
    return StoredRange(storage, lowest, highest)


def _symmetric(lows: Array, highs: Array, stored: StoredRange) -> tuple[Array, Array, Array]:
    """Return the ends that keep zero in the middle, and which ranges have zero inside."""
    lowest, highest = -(stored.span // 2 + 1), stored.span // 2
    both = (lows < 0) & (highs > 0)
    largest = np.maximum(np.abs(lows / np.float32(lowest)), np.abs(highs / np.float32(highest))).astype(np.float64)
    return (
        np.where(both, (largest * lowest).astype(np.float32), lows),
        np.where(both, (largest * highest).astype(np.float32), highs),
        both,
    )


def _binary_logarithm(values: list[float], rounded: Callable[[float], int]) -> Array:
    """log(v) / log(2) in f64, as C++ writes it: 29.000000000000004 for 2^29. Raise PreconditionError past int."""
    shifts = [rounded(math.log(value) / math.log(2.0)) if 0.0 < value < math.inf else 0 for value in values]
    for index, (shift, value) in enumerate(zip(shifts, values, strict=True)):
        if shift > _LARGEST_SHIFT or value == math.inf:
            raise PreconditionError(
                f"range {index} needs a power of two beyond 2^{_LARGEST_SHIFT}, for which torch's shift of an int is "
                "not defined",
                index=index,
            )
    return np.array([float(1 << shift) for shift in shifts])


def _power_of_two(scales: Array) -> Array:
    small = scales < 1.0
    below = _binary_logarithm(np.where(small, 1.0 / scales, 1.0).tolist(), math.floor)
    above = _binary_logarithm(np.where(small, 1.0, scales).tolist(), math.ceil)
    return np.where(small, 1.0 / below, above)


def _stretched(lows: Array, highs: Array, scales: Array, stored: StoredRange) -> tuple[Array, Array]:
    """Return the ends for the smallest scale, which replaces the `scales` of these ranges. All steps are f32."""
    wide = _SMALLEST_SCALE * np.float32(stored.span)
    amplifier = _SMALLEST_SCALE / scales.astype(np.float32)
    from_zero, to_zero = lows == 0, highs == 0
    new_lows = np.where(from_zero, lows, np.where(to_zero, -wide, lows * amplifier))
    new_highs = np.where(from_zero, wide, np.where(to_zero, highs, highs * amplifier))
    return new_lows, new_highs


def _derive(lows: Array, highs: Array, stored: StoredRange, options: RangeOptions) -> RangeParameters:
    if options.preserve_sparsity:
        if stored.span < 2:
            raise UnsupportedError("preserve_sparsity needs a storage of more than two values")
        lows, highs, _ = _symmetric(lows, highs, stored)
    lows, highs = np.minimum(lows, np.float32(0)), np.maximum(highs, np.float32(0))
    scales = (highs.astype(np.float64) - lows) / float(stored.span)
    stored_scales = scales.astype(np.float32)
    unusable = (stored_scales == 0) | np.isinf(np.float32(1) / stored_scales)
    scales = np.where(unusable, 0.1, scales)
    if options.power_of_two:
        scales = _power_of_two(scales)
    small = scales < float(_SMALLEST_SCALE)
    new_lows, new_highs = _stretched(lows, highs, scales, stored)
    lows, highs = np.where(small, new_lows, lows), np.where(small, new_highs, highs)
    scales = np.where(small, float(_SMALLEST_SCALE), scales)
    below, above = lows / scales, highs / scales
    # The error terms are differences; FBGEMM's own sources add.
    from_low = abs(stored.lowest) - np.abs(below) < abs(stored.highest) - np.abs(above)
    zero_points = np.where(from_low, stored.lowest - below, stored.highest - above)
    if options.preserve_sparsity:
        zero_points = np.where((lows < 0) & (highs > 0), (stored.lowest + stored.highest) / 2.0, zero_points)
    return parameters(scales, np.clip(np.rint(zero_points), stored.lowest, stored.highest), stored)


TORCH = RangeRule(
    name="torch",
    summary="_choose_qparams_per_tensor and its C++ function; a range without a usable scale gives 0.1",
    formula="f32 ends with 0 included; s = (max - min) / (qmax - qmin) in f64, at least 6.1e-5 by stretching it; "
    "z = RNE of qmin - min/s if |qmin| - |min/s| < |qmax| - |max/s|, else of qmax - max/s, clamped",
    source="torch 2.13 ATen QuantUtils.h ChooseQuantizationParams",
    options=frozenset({"reduced", "power_of_two", "preserve_sparsity"}),
    stored_range=_stored,
    derive=_derive,
)
