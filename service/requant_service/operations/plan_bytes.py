"""How much memory a plan takes that is kept because it may be asked for again."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from requant.plan.plan import DeferredPlan, Plan
from requant.schemes import Multiplier

# About what the objects around a kept plan take, and for each character of its types.
_OBJECTS = 4096
_PER_CHARACTER = 32
_PER_MULTIPLIER = 120


def plan_bytes(plan: Plan | None, characters: int) -> int:
    """Return about how many bytes a plan for types of so many characters takes, or the types alone."""
    return _OBJECTS + _PER_CHARACTER * characters + _held(plan)


def _held(value: Any) -> int:
    """Return the bytes of the arrays and multipliers that a part of a plan holds, or will hold."""
    if isinstance(value, (np.ndarray, DeferredPlan)):
        return value.nbytes
    if isinstance(value, Plan):
        return sum(_held(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, tuple) and value:
        return _PER_MULTIPLIER * len(value) if isinstance(value[0], Multiplier) else sum(map(_held, value))
    return 0
