"""Whether two plans are the same arithmetic: equal but for the names of what made them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from requant.calibration.ranges import RangeRule
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
    RangeRule: frozenset({"name", "summary", "formula", "source"}),
    Plan: frozenset({"profile", "rounding", "_plain_report", "_shape"}),
}


# What is equal to nothing but itself, and most of what plans hold.
_PLAIN = frozenset({int, float, str, bool, type(None), np.dtype})


_parts_by_class: dict[type, tuple[str, ...] | None] = {}


def _parts(kind: type) -> tuple[str, ...] | None:
    """Return the fields of a class that decide, None for what is no dataclass."""
    if kind not in _parts_by_class:
        skipped = {name for named, names in _NAMES.items() if issubclass(kind, named) for name in names}
        _parts_by_class[kind] = (
            tuple(each.name for each in fields(kind) if each.compare and each.name not in skipped)
            if is_dataclass(kind)
            else None
        )
    return _parts_by_class[kind]


def arithmetic_key(plan: Any) -> Hashable:
    """Return what is equal for plans of the same arithmetic. Plans with other keys may compute the same, too."""
    kind: type[Any] = type(plan)
    if kind in _PLAIN or isinstance(plan, Type):
        plain: Hashable = plan
        return plain
    if isinstance(plan, np.ndarray):
        return plan.dtype.str, plan.shape, blake2b(np.ascontiguousarray(plan).tobytes()).digest()
    if kind is tuple or kind is list:
        return tuple(plan) if all(type(each) in _PLAIN for each in plan) else tuple(map(arithmetic_key, plan))
    if isinstance(plan, DeferredPlan):
        return arithmetic_key(plan())
    if (names := _parts(kind)) is not None:
        return kind, *(arithmetic_key(getattr(plan, name)) for name in names)
    if isinstance(plan, tuple | list):
        return tuple(map(arithmetic_key, plan))
    if isinstance(plan, Mapping):
        return tuple((name, arithmetic_key(value)) for name, value in plan.items())
    # What else has no equality of its own, such as a compiled kernel, is equal to itself, or to nothing.
    return plan if isinstance(plan, Hashable) else object()
