"""Scales and steps in the floats that kernels compute in, as the rule of a profile says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.formats.elements import FLOATS, FloatElement
from requant.kernels.scalar.rounding import Precision
from requant.plan.float_arrays import rounded
from requant.profiles.rule import OperationRule, Steps

Array = NDArray[Any]

_PRECISIONS = {"f16": Precision.F16, "bf16": Precision.BF16}


def rounded_scales(scales: Sequence[float], expressed: FloatElement, rule: OperationRule) -> Array:
    """Return scales, f64 in the type, as kernels compute with them: rounded to the expressed type, or to f32.

    Those that the rule leaves out are 1.
    """
    computed = rounded(np.array(scales, np.float64), expressed if rule.scales is Steps.EXPRESSED else FLOATS["f32"])
    if rule.unit_tolerance is not None:
        distances = np.abs(computed.astype(np.float32) - np.float32(1))
        if np.all(distances <= np.float32(rule.unit_tolerance)):
            return np.ones_like(computed)
    return computed


def step_precision(steps: Steps, expressed: str) -> Precision:
    """Return what kernels round each step to."""
    return _PRECISIONS.get(expressed, Precision.NATIVE) if steps is Steps.EXPRESSED else Precision.NATIVE
