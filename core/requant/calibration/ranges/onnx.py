"""ONNX DynamicQuantizeLinear, and the three answers that there are for a range of zero width.

Source: the operator's text and function body; onnxruntime; onnx.reference.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from requant.calibration.ranges.rule import (
    Array,
    RangeOptions,
    RangeParameters,
    RangeRule,
    StoredRange,
    parameters,
    storage_among,
    written_bounds,
)
from requant.errors import UnsupportedError
from requant.mlir.printer import print_storage
from requant.mlir.types import StorageType

_LEVELS = np.float32(255)


def _stored(storage: StorageType, _: RangeOptions) -> StoredRange:
    storage_among(storage, "DynamicQuantizeLinear", ("u8",))
    if written_bounds(storage) is not None:
        raise UnsupportedError(f"DynamicQuantizeLinear has the storage u8; this is {print_storage(storage)}")
    return StoredRange(storage, 0, 255)


def _derive(
    empty_scale: np.float32, undefined_zero_point: int
) -> Callable[[Array, Array, StoredRange, RangeOptions], RangeParameters]:
    def derive(lows: Array, highs: Array, stored: StoredRange, _: RangeOptions) -> RangeParameters:
        lows, highs = np.minimum(lows, 0), np.maximum(highs, 0)
        scales = (highs - lows) / _LEVELS
        empty = lows == highs
        zero_points = np.rint(np.clip(np.float32(0) - lows / scales, np.float32(0), _LEVELS))
        # Where the scale underflows to 0, a minimum of 0 makes 0/0.
        zero_points = np.where(np.isnan(zero_points), undefined_zero_point, zero_points)
        return parameters(np.where(empty, empty_scale, scales), np.where(empty, 0, zero_points), stored)

    return derive


def _rule(name: str, summary: str, source: str, empty_scale: np.float32, undefined_zero_point: int) -> RangeRule:
    return RangeRule(
        name=name,
        summary=f"DynamicQuantizeLinear, {summary}",
        formula="f32 ends that include 0: s = f32(f32(max - min) / 255), z = RNE(clamp(f32(0 - f32(min/s)), 0, 255))",
        source=f"{source}; https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html",
        stored_range=_stored,
        derive=_derive(empty_scale, undefined_zero_point),
    )


ONNX_DYNAMIC = _rule("onnx_dynamic", "a zero range gives scale 1", "onnxruntime 1.31", np.float32(1), 255)
ONNX_DYNAMIC_REFERENCE = _rule(
    "onnx_dynamic_reference",
    "a zero range gives scale 1/255",
    "onnx 1.23 ReferenceEvaluator",
    np.float32(1) / _LEVELS,
    255,
)
ONNX_DYNAMIC_FUNCTION = _rule(
    "onnx_dynamic_function", "a zero range gives scale 0", "the operator's function body", np.float32(0), 0
)
