"""ONNX: DynamicQuantizeLinear, with the three answers for a range of zero width, and onnxruntime's quantization tools.

Sources: the operator's text and function body; onnxruntime; onnx.reference; onnxruntime.quantization.quant_utils
compute_scale_zp, compute_scale_zp_blocked.
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
    scalar_like,
    storage_among,
    written_bounds,
)
from requant.errors import UnsupportedError
from requant.mlir.printer import print_storage
from requant.mlir.types import StorageType

_LEVELS = np.float32(255)


def _dynamic_stored(storage: StorageType, _: RangeOptions) -> StoredRange:
    storage_among(storage, "DynamicQuantizeLinear", ("u8",))
    if written_bounds(storage) is not None:
        raise UnsupportedError(f"DynamicQuantizeLinear has the storage u8; this is {print_storage(storage)}")
    return StoredRange(storage, 0, 255)


def _dynamic_derive(
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


def _dynamic_rule(
    name: str, summary: str, source: str, empty_scale: np.float32, undefined_zero_point: int
) -> RangeRule:
    return RangeRule(
        name=name,
        summary=f"DynamicQuantizeLinear, {summary}",
        formula="f32 ends that include 0: s = f32(f32(max - min) / 255), z = RNE(clamp(f32(0 - f32(min/s)), 0, 255))",
        source=f"{source}; https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html",
        stored_range=_dynamic_stored,
        derive=_dynamic_derive(empty_scale, undefined_zero_point),
    )


ONNX_DYNAMIC = _dynamic_rule("onnx_dynamic", "a zero range gives scale 1", "onnxruntime 1.31", np.float32(1), 255)
ONNX_DYNAMIC_REFERENCE = _dynamic_rule(
    "onnx_dynamic_reference",
    "a zero range gives scale 1/255",
    "onnx 1.23 ReferenceEvaluator",
    np.float32(1) / _LEVELS,
    255,
)
ONNX_DYNAMIC_FUNCTION = _dynamic_rule(
    "onnx_dynamic_function", "a zero range gives scale 0", "the operator's function body", np.float32(0), 0
)


_SYMMETRIC = {"i8": (-127, 127), "i16": (-32767, 32767)}
_REDUCED = {
    "u8": (0, 127),
    "i8": (-64, 64),
    "u16": (0, 32767),
    "i16": (-16384, 16384),
    "u4": (0, 7),
    "i4": (-4, 3),
}
_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


def _stored(storage: StorageType, options: RangeOptions) -> StoredRange:
    """The tools' tables, where reduced wins over symmetric; or the bounds that were written."""
    name = storage_among(storage, "onnxruntime", tuple(_REDUCED))
    written = written_bounds(storage)
    if written is None:
        table = _REDUCED if options.reduced else _SYMMETRIC if options.symmetric else {}
        return StoredRange(storage, *table.get(name, storage.default_bounds))
    if options.reduced:
        raise UnsupportedError("onnxruntime defines the bounds of a reduced range; write the storage without bounds")
    if not written[0] <= 0 <= written[1]:
        raise UnsupportedError(f"onnxruntime needs bounds with 0 between them; these are {written[0]}:{written[1]}")
    return StoredRange(storage, *written)


def _blocked_stored(storage: StorageType, options: RangeOptions) -> StoredRange:
    if written_bounds(storage) is not None:
        raise UnsupportedError("onnxruntime_blocked does not support storage bounds; write the storage without them")
    return _stored(storage, options)


def _widened(lows: Array, highs: Array, options: RangeOptions) -> tuple[Array, Array]:
    lows, highs = np.minimum(lows, 0), np.maximum(highs, 0)
    if options.minimum_real_range is not None:
        highs = np.maximum(highs, lows + scalar_like(lows, options.minimum_real_range))
    if options.symmetric:
        highs = np.maximum(np.abs(lows), np.abs(highs))
        lows = -highs
    return lows, highs


def _middle(stored: StoredRange) -> int:
    return round((stored.lowest + stored.highest) / 2)


def _compute(lows: Array, highs: Array, stored: StoredRange, options: RangeOptions) -> RangeParameters:
    lows, highs = _widened(lows, highs, options)
    scales = (highs.astype(np.float64) - lows) / float(stored.span)
    unused = scales < _SMALLEST_NORMAL
    scales = np.where(unused, 1.0, scales)
    zero_points = np.array(_middle(stored)) if options.symmetric else np.rint(stored.lowest - lows / scales)
    return parameters(scales.astype(np.float32), np.where(unused, 0, zero_points), stored)


def _compute_blocked(lows: Array, highs: Array, stored: StoredRange, options: RangeOptions) -> RangeParameters:
    lows, highs = _widened(lows, highs, options)
    scales = ((highs - lows).astype(np.float64) / float(stored.span)).astype(np.float32)
    unused = scales < np.float32(_SMALLEST_NORMAL)
    scales = np.where(unused, np.float32(1.0), scales)
    if options.symmetric:
        return parameters(scales, np.array(_middle(stored)), stored)
    zero_points = np.rint(stored.lowest - lows.astype(np.float64) / scales.astype(np.float64))
    clamped = np.clip(zero_points, stored.lowest, stored.highest)
    return parameters(scales, np.where(unused, 0, clamped), stored)


ONNXRUNTIME = RangeRule(
    name="onnxruntime",
    summary="compute_scale_zp of onnxruntime's quantization tools; a scale below the normal f32 becomes 1",
    formula="s = (max - min) / (qmax - qmin) in f64 on f32 ends that include 0, z = RNE(qmin - min/s), s cast to f32; "
    "symmetric: max|.| both ways, z = RNE((qmin + qmax) / 2)",
    source="onnxruntime.quantization 1.31 quant_utils.py",
    options=frozenset({"symmetric", "reduced", "minimum_real_range"}),
    block_rule="onnxruntime_blocked",
    stored_range=_stored,
    derive=_compute,
)

ONNXRUNTIME_BLOCKED = RangeRule(
    name="onnxruntime_blocked",
    summary="compute_scale_zp_blocked of onnxruntime's quantization tools, for the blocks of a weight",
    formula="s = f32(f32(max - min) / (qmax - qmin)), z = RNE(qmin - min/s) in f64, clamped; symmetric as onnxruntime",
    source="onnxruntime.quantization 1.31 quant_utils.py",
    options=frozenset({"symmetric"}),
    only_blocks=True,
    stored_range=_blocked_stored,
    derive=_compute_blocked,
)
