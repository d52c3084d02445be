"""Scales and zero points that are found in data, alone or as the first half of a quantization."""

from __future__ import annotations

from service.operations.calibration.search import (
    DEFAULT_METHOD,
    Calibrated,
    Calibration,
    CalibrationRequest,
    GranularityName,
    plan_calibration,
)

__all__ = ["DEFAULT_METHOD", "Calibrated", "Calibration", "CalibrationRequest", "GranularityName", "plan_calibration"]
