"""Whether two plans are the same arithmetic: equal but for the names of what made them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from requant.convert.scaling import ScalingPlan
from requant.integer.add import AddPlan
from requant.integer.output import OutputStage
from requant.integer.product import ProductPlan
from requant.mlir.types import Type
from requant.plan.plan import DeferredPlan, Plan

# Fields that name what a plan was made of. Its kernels and their arguments decide what it computes.
_NAMES: Mapping[type, frozenset[str]] = {
    ScalingPlan: frozenset({"scheme", "granularity", "sides", "multipliers"}),
    OutputStage: frozenset({"scheme", "granularity", "multipliers", "factors"}),
    ProductPlan: frozenset({"profile"}),
    AddPlan: frozenset({"profile"}),
    Plan: frozenset({"profile", "rounding", "_plain_report"}),
}


def arithmetic_key(plan: Any) -> Hashable:
    """Return what is equal for plans of the same arithmetic. Plans with other keys may compute the same, too."""
    if isinstance(plan, int | float | str | None | Type):
        return plan
    if isinstance(plan, np.ndarray):
        return plan.dtype.str, plan.shape, blake2b(np.ascontiguousarray(plan).tobytes()).digest()
    if isinstance(plan, DeferredPlan):
        return arithmetic_key(plan())
    if isinstance(plan, tuple | list):
        return tuple(map(arithmetic_key, plan))
    if isinstance(plan, Mapping):
        return tuple((name, arithmetic_key(value)) for name, value in plan.items())
    if is_dataclass(plan) and not isinstance(plan, type):
        skipped = {name for kind, names in _NAMES.items() if isinstance(plan, kind) for name in names}
        compared = (each.name for each in fields(plan) if each.compare and each.name not in skipped)
        values = (arithmetic_key(getattr(plan, name)) for name in compared)
        return type(plan), *values
    # What else has no equality of its own, such as a compiled kernel, is equal to itself, or to nothing.
    return plan if isinstance(plan, Hashable) else object()
