"""onnxruntime's quantization tools: parameters of a tensor or channel, and of blocks of a weight.

Source: onnxruntime.quantization.quant_utils compute_scale_zp, compute_scale_zp_blocked.
"""

from __future__ import annotations

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
from requant.mlir.types import StorageType

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
