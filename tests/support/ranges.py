"""A range rule on one range."""

from __future__ import annotations

import numpy as np

from requant.calibration.ranges import RangeOptions, RangeParameters, range_rule_named
from requant.mlir.types import StorageType

DEFAULTS = RangeOptions()


def derive_range(
    rule: str, minimum: float, maximum: float, storage: StorageType, options: RangeOptions = DEFAULTS
) -> RangeParameters:
    """The parameters of one range, as arrays of one. Errors as of RangeRule.derive_all."""
    return range_rule_named(rule).derive_all(np.array([minimum]), np.array([maximum]), storage, options)
