"""Quantization by threads that take subnormal numbers for zero, where that shows.

To nearest or toward zero, a quotient that rounds to other than 0 has |x| of at least half the scale. So subnormal x
show only at scales of at most 2^-125; everywhere else they and zeros give the same. By the other roundings, which a
request can ask for, they show at every scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.plan.operands import QuantizedOperand
from requant.plan.plan import Array, Plan, around, pieces
from requant.profiles import OperationRule, Rounding

_SMALLEST_NORMAL = np.finfo(np.float32).smallest_normal
_LARGEST_THAT_SHOWS = 2.0**-125
_SHOWING = (Rounding.FLOOR, Rounding.CEILING, Rounding.STOCHASTIC)


def flushed(values: Array) -> Array:
    """Return f32 with subnormals replaced by 0."""
    return np.where(np.abs(values) < _SMALLEST_NORMAL, np.float32(0), values)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushingPlan(Plan):
    """`whole`, of a source whose subnormals are zeros."""

    whole: Plan

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        for piece in pieces(source.size):
            self.whole.step(flushed(source[piece]), target[piece], start + piece.start, counts)

    def explain_undefined(self, counts: Array) -> str:
        return self.whole.explain_undefined(counts)


def plan_flushing(whole: Plan, rule: OperationRule, operand: QuantizedOperand) -> Plan:
    """Return `whole`, or a plan around it where subnormal x show."""
    if rule.rounding not in _SHOWING and min(operand.scales) > _LARGEST_THAT_SHOWS:
        return whole
    return FlushingPlan(**around(whole), whole=whole)
