"""The smallest and the largest element."""

from __future__ import annotations

from requant.calibration.methods.method import CalibrationMethod, CalibrationOptions, FoundRanges, Target
from requant.calibration.methods.observed import Observed


def _find(observed: Observed, _: CalibrationOptions, __: Target) -> FoundRanges:
    return FoundRanges(*observed.overall_extremes())


MINIMUM_MAXIMUM = CalibrationMethod(
    name="min_max",
    summary="the smallest and the largest element of all tensors; NaN and infinity are refused",
    formula="min x, max x",
    source="onnxruntime 1.31 calibrate.py MinMaxCalibrater; torch 2.13 MinMaxObserver",
    one_pass=True,
    find=_find,
)
