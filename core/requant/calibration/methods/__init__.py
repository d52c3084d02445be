"""From data to the ranges of which scales and zero points are made, in the methods of each system.

`calibration_method_named` finds a method; its `find_ranges` takes the observed tensors. Every method states its formula
and where it is from.
"""

from __future__ import annotations

from collections.abc import Mapping

from requant.calibration.methods.entropy import ENTROPY, ENTROPY_MODEL_OPTIMIZER
from requant.calibration.methods.extremes import MINIMUM_MAXIMUM, MOVING_AVERAGE
from requant.calibration.methods.histograms import TORCH_HISTOGRAM
from requant.calibration.methods.mean_squared_error import MEAN_SQUARED_ERROR
from requant.calibration.methods.method import CalibratedRanges, CalibrationMethod, CalibrationOptions, Target
from requant.calibration.methods.observed import Observed, blocks_of
from requant.calibration.methods.percentile import PERCENTILE
from requant.errors.names import entry_named

__all__ = [
    "CALIBRATION_METHODS",
    "CalibratedRanges",
    "CalibrationMethod",
    "CalibrationOptions",
    "Observed",
    "Target",
    "blocks_of",
    "calibration_method_named",
]

CALIBRATION_METHODS: Mapping[str, CalibrationMethod] = {
    method.name: method
    for method in (
        MINIMUM_MAXIMUM,
        MOVING_AVERAGE,
        PERCENTILE,
        ENTROPY,
        ENTROPY_MODEL_OPTIMIZER,
        MEAN_SQUARED_ERROR,
        TORCH_HISTOGRAM,
    )
}


def calibration_method_named(name: str) -> CalibrationMethod:
    """Return the method of that name, or raise UnknownNameError listing those that exist."""
    return entry_named(CALIBRATION_METHODS, name, "calibration method")
