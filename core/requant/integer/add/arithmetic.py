"""What every arithmetic of addition has: a step over pieces of the tensors, and the names of its stages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.plan.operands import QuantizedOperand
from requant.plan.plan import Plan
from requant.schemes import Multiplier

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic(ABC):
    """An addition. `multipliers`: of lhs, rhs and the sum, where it has them. `rounding` names that of the output."""

    rounding: str
    scheme: str | None = None
    multipliers: Sequence[Multiplier] = ()

    @abstractmethod
    def step(self, lhs: Array, rhs: Array, target: Array, start: int, counts: Array) -> dict[str, Array]:
        """Add pieces that begin at flat index `start` to `target`; add to `counts` (`requant.plan.plan`).

        Return the stages between, by name.
        """

    def new_counts(self) -> Array:
        """Return the tally before the first piece."""
        return np.array([0, 0, 0, -1], np.int64)

    def explain_undefined(self, counts: Array) -> str:
        """Say what the arithmetic demands of an element."""
        return "the arithmetic is not defined for this element"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedArithmetic(Arithmetic):
    """An addition by conversions: `plans` convert both sides, `last` their sum, and the tally is that of `last`."""

    plans: tuple[Plan, Plan]
    last: Plan

    def new_counts(self) -> Array:
        return self.last.new_counts()

    def explain_undefined(self, counts: Array) -> str:
        return self.last.explain_undefined(counts)


def clamp(sums: Array, output: QuantizedOperand, target: Array, counts: Array) -> None:
    """Write integers to `target` within the bounds of the output, and count those that were not."""
    counts[0] += np.count_nonzero(sums < output.minimum)
    counts[1] += np.count_nonzero(sums > output.maximum)
    target[:] = np.clip(sums, output.minimum, output.maximum)
