"""Fake quantization's range, nudged so that zero is one of its steps: TensorFlow's, and LiteRT's copy of it.

Source: TensorFlow fake_quant_ops_functor.h Nudge; LiteRT NudgeQuantizationRange. TensorFlow
computes with subnormals flushed to zero, LiteRT does not.
"""

from __future__ import annotations

import numpy as np

from requant.calibration.ranges.rule import (
    Array,
    RangeOptions,
    RangeParameters,
    RangeRule,
    StoredRange,
    integer_storage,
    narrowed,
    parameters,
    refuse_vanished,
    round_half_away,
    scalar_like,
)
from requant.errors import ParameterError, PreconditionError, UnsupportedError
from requant.mlir.printer import print_storage
from requant.mlir.types import StorageType

_SMALLEST_NORMAL = np.float32(2.0**-126)
# Between these steps no result of fake quantization depends on whether subnormals are flushed.
_SMALLEST_STEP, _LARGEST_STEP = 2.0**-124, 2.0**125


def _stored(storage: StorageType, options: RangeOptions) -> StoredRange:
    width = integer_storage(storage, "fake quantization").width
    if storage.signed or not 2 <= width <= 16:
        raise UnsupportedError(f"fake quantization has no storage {print_storage(storage)}; it has u2 to u16")
    return narrowed(storage, options, "fake quantization")


def _nudge(lows: Array, highs: Array, stored: StoredRange) -> RangeParameters:
    """Return scale, zero point and nudged range of each f32 range of some width."""
    lowest, highest = scalar_like(lows, stored.lowest), scalar_like(lows, stored.highest)
    scales = (highs - lows) / (highest - lowest)
    refuse_vanished(scales, lows, highs, "f32")
    zero_points = round_half_away(np.clip(lowest - lows / scales, lowest, highest))
    return parameters(scales, zero_points, stored, (lowest - zero_points) * scales, (highest - zero_points) * scales)


def _refuse_points(points: Array, lows: Array, system: str) -> None:
    if points.any():
        index = int(np.argmax(points))
        raise ParameterError(
            f"range {index} is the single number {float(lows[index])!r}; {system} divides by its width",
            index=index,
        )


def _tensorflow(lows: Array, highs: Array, stored: StoredRange, _: RangeOptions) -> RangeParameters:
    """A range of 0 to 0 has scale and nudged range 0, since the operators answer it with zeros."""
    lows, highs = flushed(lows), flushed(highs)
    empty = (lows == 0) & (highs == 0)
    _refuse_points((lows == highs) & ~empty, lows, "tf_fake_quant")
    nudged = _nudge(lows, np.where(empty, np.float32(stored.span), highs), stored)
    outside = ~((nudged.scales >= _SMALLEST_STEP) & (nudged.scales <= _LARGEST_STEP)) & np.isfinite(nudged.scales)
    if outside.any():
        index = int(np.argmax(outside))
        raise PreconditionError(
            f"range {index} has the step {float(nudged.scales[index])!r}; outside of 2^-124 to 2^125 TensorFlow's "
            "results depend on which subnormals its threads flush to zero",
            index=index,
        )
    assert nudged.nudged_maximums is not None
    return RangeParameters(
        np.where(empty, 0.0, nudged.scales),
        nudged.zero_points,
        nudged.storage,
        nudged.nudged_minimums,
        np.where(empty, np.float32(0), nudged.nudged_maximums),
    )


def flushed(ends: Array) -> Array:
    """Return f32 values with subnormals as 0, as TensorFlow's threads read them."""
    return np.where(np.abs(ends) < _SMALLEST_NORMAL, np.float32(0), ends)


def _litert(lows: Array, highs: Array, stored: StoredRange, _: RangeOptions) -> RangeParameters:
    _refuse_points(lows == highs, lows, "litert_fake_quant")
    return _nudge(lows, highs, stored)


_FORMULA = (
    "f32: s = f32(f32(max - min) / (qmax - qmin)), z = RNA(f32(qmin - f32(min/s))) clamped, nudged range "
    "f32((qmin - z) * s) to f32((qmax - z) * s)"
)

TF_FAKE_QUANT = RangeRule(
    name="tf_fake_quant",
    summary="the nudged range of TensorFlow's fake_quant_with_min_max operators; a range without 0 is moved to 0",
    formula=f"{_FORMULA}; subnormal ends are 0",
    source="TensorFlow 2.21 fake_quant_ops_functor.h Nudge",
    options=frozenset({"narrow"}),
    stored_range=_stored,
    derive=_tensorflow,
)

LITERT_FAKE_QUANT = RangeRule(
    name="litert_fake_quant",
    summary="the nudged range of LiteRT's FAKE_QUANT; a range without 0 is moved to 0",
    formula=_FORMULA,
    source="LiteRT quantization_util.cc NudgeQuantizationRange",
    options=frozenset({"narrow"}),
    stored_range=_stored,
    derive=_litert,
)
