"""oneDNN: it takes parameters and computes none; this is the rule of its developer guide.

Source: oneDNN developer guide, Int8 Inference: with R = max|x|, the quantization factor is 255/R for activations that
are not negative and 127/R for weights. The scale is its reciprocal. The guide states no precision; here R/255 and R/127
are rounded to f32.
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
    scalar_like,
    storage_among,
)
from requant.errors import ParameterError
from requant.mlir.types import StorageType


def _stored(storage: StorageType, _: RangeOptions) -> StoredRange:
    name = storage_among(storage, "onednn", ("u8", "i8"))
    return narrowed(storage, RangeOptions(narrow=name == "i8"), "onednn")


def _derive(lows: Array, highs: Array, stored: StoredRange, _: RangeOptions) -> RangeParameters:
    if not stored.storage.signed and (lows < 0).any():
        index = int(np.argmax(lows < 0))
        raise ParameterError(
            f"range {index} has a minimum below 0; onednn's rule for u8 is for activations that are not negative",
            index=index,
        )
    largest = np.maximum(np.abs(lows), np.abs(highs))
    return parameters(largest / scalar_like(lows, stored.highest), np.array(0), stored)


ONEDNN = RangeRule(
    name="onednn",
    summary="the scales of oneDNN's developer guide: u8 for activations that are not negative, i8 in -127 to 127",
    formula="f32: s = f32(max|.| / 255) for u8, f32(max|.| / 127) for i8; z = 0",
    source="oneDNN developer guide, Int8 Inference (a document; the library computes no such scales)",
    stored_range=_stored,
    derive=_derive,
)
