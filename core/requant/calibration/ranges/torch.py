"""PyTorch: the C++ rule of FBGEMM and dynamic quantization, the observers, quantized_decomposed, parameters per token.

Sources: ATen QuantUtils.h ChooseQuantizationParams; torch.ao.quantization.observer, .utils determine_qparams,
.fx._decomposed.
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
    scalar_like,
    storage_among,
    written_bounds,
)
from requant.errors import PreconditionError, UnsupportedError
from requant.mlir.printer import print_storage
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


def _symmetric_ends(lows: Array, highs: Array, stored: StoredRange) -> tuple[Array, Array, Array]:
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
        lows, highs, _ = _symmetric_ends(lows, highs, stored)
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


_EPSILON = 2.0**-23
_LEAST_MAGNITUDE = 1e-5
_REDUCED = {"i8": (-64, 63), "u8": (0, 127)}


def _observer_stored(storage: StorageType, options: RangeOptions) -> StoredRange:
    """The dtype's integers, where reduced changes 8 bits only; or the written ones, which reduced halves downwards."""
    name = storage_among(storage, "torch_observer", ("i8", "u8", "u4", "i16", "u16", "i32"))
    if name == "u8" and options.symmetric and options.reduced:
        raise UnsupportedError("torch's observers do not reduce a symmetric range of u8")
    written = written_bounds(storage)
    if written is None:
        return StoredRange(storage, *(_REDUCED.get(name) if options.reduced else None) or storage.default_bounds)
    if not written[0] <= 0 <= written[1]:
        raise UnsupportedError(f"torch_observer needs bounds with 0 between them; these are {written[0]}:{written[1]}")
    if options.reduced:
        written = written[0] // 2, written[1] // 2
        if written[0] == written[1]:
            raise UnsupportedError("this storage has no values left when its range is reduced")
    return StoredRange(storage, *written)


def _decomposed_stored(storage: StorageType, _: RangeOptions) -> StoredRange:
    """The dtype's integers or those written: quant_min and quant_max are arguments of the operator."""
    storage_among(storage, "torch_decomposed", ("i8", "u8", "i16", "u16", "i32"))
    return StoredRange(storage, storage.minimum, storage.maximum)


def _affine(lows: Array, highs: Array, stored: StoredRange, options: RangeOptions) -> tuple[Array, Array]:
    span = scalar_like(lows, stored.span)
    scales = np.maximum((highs - lows) / span, _epsilon(options))
    # torch converts to int32, where an i32 range has quotients below it, and subtracts in int32, which wraps.
    below = np.maximum(np.rint(lows / scales), -(2.0**31)).astype(np.int64)
    wrapped = (stored.lowest - below).astype(np.int32)
    return scales, np.clip(wrapped.astype(np.int64), stored.lowest, stored.highest)


def _symmetric_scales(lows: Array, highs: Array, stored: StoredRange, options: RangeOptions) -> Array:
    half = scalar_like(lows, stored.span / 2)
    scales: Array = np.maximum(np.maximum(-lows, highs) / half, _epsilon(options))
    return scales


def _epsilon(options: RangeOptions) -> np.float32:
    return np.float32(_EPSILON if options.epsilon is None else options.epsilon)


def _observe(lows: Array, highs: Array, stored: StoredRange, options: RangeOptions) -> RangeParameters:
    lows, highs = np.minimum(lows, 0), np.maximum(highs, 0)
    if not options.symmetric:
        return parameters(*_affine(lows, highs, stored, options), stored)
    middle = 0
    if not stored.storage.signed and stored.storage.width == 8:
        middle = 128 if written_bounds(stored.storage) is None else (stored.lowest + stored.highest) // 2
    elif not stored.storage.signed and stored.storage.width == 16:
        middle = 1 << 15
    return parameters(_symmetric_scales(lows, highs, stored, options), np.array(middle), stored)


def _decompose(lows: Array, highs: Array, stored: StoredRange, options: RangeOptions) -> RangeParameters:
    lows, highs = np.minimum(lows, 0), np.maximum(highs, 0)
    if not options.symmetric:
        return parameters(*_affine(lows, highs, stored, options), stored)
    middle = 128 if not stored.storage.signed and stored.storage.width == 8 else 0
    return parameters(_symmetric_scales(lows, highs, stored, options), np.array(middle), stored)


def _token_stored(storage: StorageType, _: RangeOptions) -> StoredRange:
    storage_among(storage, "torch_per_token", ("i8",))
    if written_bounds(storage) is not None:
        raise UnsupportedError(f"torch_per_token has the storage i8; this is {print_storage(storage)}")
    return StoredRange(storage, -128, 127)


def _per_token(lows: Array, highs: Array, stored: StoredRange, options: RangeOptions) -> RangeParameters:
    if options.symmetric:
        largest = np.maximum(np.maximum(np.abs(lows), np.abs(highs)), np.float32(_LEAST_MAGNITUDE))
        return parameters(largest / np.float32(127), np.array(0), stored)
    lows, highs = np.minimum(lows, 0), np.maximum(highs, 0)
    scales = np.maximum((highs - lows) / np.float32(255), np.float32(_EPSILON))
    below, above = lows / scales, highs / scales
    lowest, highest = np.float32(stored.lowest), np.float32(stored.highest)
    zero_points = np.where((lowest + below) + (highest + above) > 0, lowest - below, highest - above)
    return parameters(scales, np.rint(np.clip(zero_points, lowest, highest)), stored)


TORCH_OBSERVER = RangeRule(
    name="torch_observer",
    summary="the observers (min-max, moving average, per channel, histogram); scales are at least epsilon, or 2^-23",
    formula="f32 ends that include 0: s = max(f32(f32(max - min) / (qmax - qmin)), eps), z = qmin - RNE(f32(min/s)) "
    "clamped; symmetric: s = max(f32(max|.| / ((qmax - qmin) / 2)), eps), z = 0, for u8 128, for u16 2^15",
    source="torch 2.13 torch.ao.quantization.observer",
    options=frozenset({"symmetric", "reduced", "epsilon"}),
    stored_range=_observer_stored,
    derive=_observe,
)

TORCH_DECOMPOSED = RangeRule(
    name="torch_decomposed",
    summary="quantized_decomposed.choose_qparams and choose_qparams_symmetric",
    formula="as torch_observer; symmetric: z = 0, for u8 128",
    source="torch 2.13 torch.ao.quantization.fx._decomposed",
    options=frozenset({"symmetric", "epsilon"}),
    stored_range=_decomposed_stored,
    derive=_decompose,
)

TORCH_PER_TOKEN = RangeRule(
    name="torch_per_token",
    summary="choose_qparams_per_token (symmetric) and choose_qparams_per_token_asymmetric, for i8",
    formula="f32 ends that include 0: s = max(f32(f32(max - min) / 255), 2^-23), a = f32(min/s), b = f32(max/s), "
    "z = RNE(clamp(qmin - a if (qmin + a) + (qmax + b) > 0 else qmax - b)); "
    "symmetric: s = f32(max(max|.|, 1e-5) / 127), z = 0",
    source="torch 2.13 torch.ao.quantization.fx._decomposed",
    options=frozenset({"symmetric"}),
    stored_range=_token_stored,
    derive=_per_token,
)
