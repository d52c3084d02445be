"""LiteRT: the range rules of its runtime, of its hybrid kernels and of its converter.

Source: LiteRT quantization_util.h, portable_tensor_utils.cc and, of the converter, quantization_utils.cc.
"""

from __future__ import annotations

import numpy as np

from requant.calibration.ranges.rule import (
    Array,
    RangeOptions,
    RangeParameters,
    RangeRule,
    StoredRange,
    narrowed,
    parameters,
    refuse_vanished,
    round_half_away,
    scalar_like,
    storage_among,
    written_bounds,
)
from requant.errors import UnsupportedError
from requant.mlir.types import StorageType

_SYMMETRIC_HALF = {"i8": 127, "i16": 32767}


def _stored(storage: StorageType, options: RangeOptions) -> StoredRange:
    storage_among(storage, "litert", ("i8", "u8", "i16", "u16", "i32", "u32"))
    return narrowed(storage, options, "litert")


def nearer_zero_point(lows: Array, highs: Array, scales: Array, stored: StoredRange) -> Array:
    """Return qmin - min/s where |qmin| + |min/s| < |qmax| + |max/s|, else qmax - max/s."""
    below, above = lows / scales, highs / scales
    low_error = abs(stored.lowest) + np.abs(below)
    high_error = abs(stored.highest) + np.abs(above)
    return np.where(low_error < high_error, stored.lowest - below, stored.highest - above)


def _choose(lows: Array, highs: Array, stored: StoredRange, _: RangeOptions) -> RangeParameters:
    scales = (highs - lows) / float(stored.span)
    refuse_vanished(scales, lows, highs, "f64")
    zero_points = nearer_zero_point(lows, highs, scales, stored)
    nudged = np.clip(round_half_away(zero_points), stored.lowest, stored.highest)
    empty = lows == highs
    return parameters(np.where(empty, 0.0, scales), np.where(empty, 0, nudged), stored)


def _hybrid_stored(storage: StorageType, options: RangeOptions) -> StoredRange:
    storage_among(storage, "litert_hybrid", ("i8",))
    if options.symmetric:
        return narrowed(storage, RangeOptions(narrow=True), "litert_hybrid")
    if written_bounds(storage) is not None:
        raise UnsupportedError("litert_hybrid allows storage bounds only with symmetric: -127:127")
    return StoredRange(storage, *storage.default_bounds)


def _hybrid(lows: Array, highs: Array, stored: StoredRange, options: RangeOptions) -> RangeParameters:
    if options.symmetric:
        reach = np.maximum(np.abs(lows), np.abs(highs))
        scales = reach / scalar_like(reach, stored.highest)
        return parameters(np.where(reach == 0, scalar_like(reach, 1), scales), np.array(0), stored)
    lows, highs = np.minimum(lows, 0), np.maximum(highs, 0)
    scales = (highs - lows).astype(np.float64) / float(stored.span)
    zero_points = np.clip(
        round_half_away(nearer_zero_point(lows, highs, scales, stored)), stored.lowest, stored.highest
    )
    empty = lows == highs
    return parameters(np.where(empty, 1.0, scales).astype(np.float32), np.where(empty, 0, zero_points), stored)


def _converter_stored(storage: StorageType, options: RangeOptions) -> StoredRange:
    name = storage_among(storage, "litert_converter", tuple(_SYMMETRIC_HALF))
    if name == "i16" and not options.symmetric:
        raise UnsupportedError("litert_converter gives i16 a symmetric range only; set symmetric")
    lowest, highest = storage.default_bounds
    weights = options.symmetric and name == "i8"
    return (
        narrowed(storage, RangeOptions(narrow=weights), "litert_converter")
        if weights
        else StoredRange(storage, lowest, highest)
    )


def _convert(lows: Array, highs: Array, stored: StoredRange, options: RangeOptions) -> RangeParameters:
    if options.symmetric:
        return parameters(
            np.maximum(np.abs(lows), np.abs(highs)) / scalar_like(lows, stored.highest), np.array(0), stored
        )
    lows, highs = np.minimum(lows, 0), np.maximum(highs, 0)
    lowest, highest = scalar_like(lows, stored.lowest), scalar_like(lows, stored.highest)
    scales = (highs - lows) / (highest - lowest)
    zero_points = np.where(scales == 0, lowest, lowest - lows / scales)
    return parameters(scales, round_half_away(np.clip(zero_points, lowest, highest)), stored)


LITERT = RangeRule(
    name="litert",
    summary="ChooseQuantizationParams of LiteRT's runtime; an empty range gives scale 0",
    formula="s = (max - min) / (qmax - qmin) in f64; z = RNA of qmin - min/s or qmax - max/s, "
    "whichever adds the smaller magnitudes, clamped",
    source="LiteRT quantization_util.h ChooseQuantizationParams",
    options=frozenset({"narrow"}),
    keeps_f32=False,
    contains_zero=True,
    stored_range=_stored,
    derive=_choose,
)

LITERT_CONVERTER = RangeRule(
    name="litert_converter",
    summary="the converter's activations (i8 asymmetric, i16 symmetric) and weights (i8 symmetric, -127 to 127)",
    formula="f32: s = f32(f32(max - min) / 255), z = RNA(f32(-128 - f32(min/s))) clamped; symmetric: "
    "s = f32(max|.| / 127 or 32767), z = 0",
    source="LiteRT quantization_utils.cc GetAsymmetricQuantizationParams, SymmetricPerLayerQuantizeValues",
    options=frozenset({"symmetric"}),
    stored_range=_converter_stored,
    derive=_convert,
)

LITERT_HYBRID = RangeRule(
    name="litert_hybrid",
    summary="how kernels with float inputs and i8 weights quantize each row of their input; 0 to 0 gives scale 1",
    formula="f32 ends that include 0: s = f32(max - min) / 255 in f64, z as litert from that, s cast to f32; "
    "symmetric: s = f32(max|.| / 127), z = 0",
    source="LiteRT portable_tensor_utils.cc SymmetricQuantizeFloats, AsymmetricQuantizeFloats",
    options=frozenset({"symmetric"}),
    stored_range=_hybrid_stored,
    derive=_hybrid,
)
