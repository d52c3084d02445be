"""MLIR's own conversion of fake-quantization attributes to quantized types.

Source: MLIR FakeQuantSupport.cpp.
"""

from __future__ import annotations

import numpy as np

from requant.calibration.ranges.litert import nearer_zero_point
from requant.calibration.ranges.rule import (
    Array,
    RangeOptions,
    RangeParameters,
    RangeRule,
    StoredRange,
    narrowed,
    parameters,
    round_half_away,
    storage_among,
)
from requant.mlir.types import StorageType

_EPSILON = 2.0**-52


def _stored(storage: StorageType, options: RangeOptions) -> StoredRange:
    storage_among(storage, "mlir", ("i8", "u8", "i16", "u16", "i32", "u32"))
    return narrowed(storage, options, "mlir")


def _derive(lows: Array, highs: Array, stored: StoredRange, _: RangeOptions) -> RangeParameters:
    scales = (highs - lows) / float(stored.span)
    zero_points = nearer_zero_point(lows, highs, scales, stored)
    nudged = round_half_away(np.clip(zero_points, stored.lowest, stored.highest))
    empty = np.abs(highs - lows) < _EPSILON
    return parameters(np.where(empty, 1.0, scales), np.where(empty, stored.lowest, nudged), stored)


MLIR = RangeRule(
    name="mlir",
    summary="fake-quantization attributes to a type, as MLIR does; a range without 0 keeps its scale and is shifted",
    formula="s = (max - min) / (qmax - qmin) in f64; z = RNA of qmin - min/s or qmax - max/s, whichever adds the "
    "smaller magnitudes, clamped; narrower than 2^-52: s = 1, z = qmin",
    source="MLIR lib/Dialect/Quant/Utils/FakeQuantSupport.cpp",
    options=frozenset({"narrow"}),
    keeps_f32=False,
    stored_range=_stored,
    derive=_derive,
)
