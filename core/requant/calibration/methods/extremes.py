"""The smallest and the largest element, of all tensors at once, or averaged over them as torch's observers do."""

from __future__ import annotations

import numpy as np

from requant.calibration.methods.method import (
    Array,
    CalibratedRanges,
    CalibrationMethod,
    CalibrationOptions,
    Target,
    real_option,
)
from requant.calibration.methods.observed import Observed
from requant.errors import PreconditionError


def _find_extremes(observed: Observed, _: CalibrationOptions, __: Target) -> CalibratedRanges:
    return CalibratedRanges(*observed.overall_extremes())


MINIMUM_MAXIMUM = CalibrationMethod(
    name="min_max",
    summary="the smallest and the largest element of all tensors; NaN and infinity are refused",
    formula="min x, max x",
    source="onnxruntime 1.31 calibrate.py MinMaxCalibrater; torch 2.13 MinMaxObserver",
    one_pass=True,
    find=_find_extremes,
)


_CONSTANT = 0.01


def _find_average(observed: Observed, options: CalibrationOptions, _: Target) -> CalibratedRanges:
    constant = np.float32(real_option(options, "averaging_constant", _CONSTANT, 1.0))
    lows, highs = _in_f32(observed, 0)
    for index in range(1, len(observed.arrays)):
        new_lows, new_highs = _in_f32(observed, index)
        with np.errstate(all="ignore"):
            lows = lows + constant * (new_lows - lows)
            highs = highs + constant * (new_highs - highs)
    return CalibratedRanges(lows.astype(np.float64), highs.astype(np.float64))


def _in_f32(observed: Observed, index: int) -> tuple[Array, Array]:
    """Return the extremes of a tensor as f32, which the observer reads it as: rounding does not change their order."""
    with np.errstate(over="ignore"):
        lows, highs = (ends.astype(np.float32) for ends in observed.extremes(index))
    if not (np.isfinite(lows).all() and np.isfinite(highs).all()):
        raise PreconditionError(
            "the tensor has numbers beyond f32, the type of the average", pointer=observed.places[index]
        )
    return lows, highs


MOVING_AVERAGE = CalibrationMethod(
    name="moving_average",
    summary="torch's moving average observers, per tensor and per channel; NaN and infinity are refused",
    formula="f32: m = min x of the first tensor, then m = m + c * (min x - m); the same with max; c = "
    f"averaging_constant rounded to f32, {_CONSTANT} by default",
    source="torch 2.13 MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver",
    scheme="torch_observer",
    one_pass=True,
    options=frozenset({"averaging_constant"}),
    find=_find_average,
)
