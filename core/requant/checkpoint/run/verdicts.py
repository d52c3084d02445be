"""What became of the numbers of each tensor: proven, by comparing the numbers that both sides hold.

    copied    the same bytes
    exact     codes and scales that hold the same numbers
    widened   floats that are the same numbers
    rounded   anything else: how many numbers differ, and by how much at most

A number is the value of a code times its scale, before any dtype rounds the product (`WeightFormat.numbers`). 0 and -0
are one number, and a NaN equals a NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from threading import Lock
from typing import Any

from requant.checkpoint.plan.model import QuantizeStep, Step
from requant.checkpoint.weights.floats import Array
from requant.checkpoint.weights.repack import Inexact, compare_numbers


class Outcome(StrEnum):
    """What became of the numbers of a tensor."""

    COPIED = "copied"
    EXACT = "exact"
    WIDENED = "widened"
    ROUNDED = "rounded"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a tensor, whose numbers were all compared unless it was copied.

    `numbers`: how many. `differing`: those that are not what they were, `largest_error` in magnitude; None where one
    of both is NaN or infinite.
    """

    outcome: Outcome
    numbers: int = 0
    differing: int = 0
    largest_error: float | None = 0.0

    @property
    def members(self) -> dict[str, Any]:
        """The verdict as members of JSON."""
        if self.outcome is Outcome.COPIED:
            return {"verdict": str(self.outcome)}
        compared = {"verdict": str(self.outcome), "numbers": self.numbers}
        if self.outcome is not Outcome.ROUNDED:
            return compared
        return {**compared, "differing": self.differing, "largest_error": self.largest_error}


def verdict_of(members: Mapping[str, Any]) -> Verdict:
    """Return the verdict that has these `members`. Raises KeyError, TypeError or ValueError for anything else."""
    outcome, error = Outcome(members["verdict"]), members.get("largest_error", 0.0)
    return Verdict(
        outcome,
        int(members.get("numbers", 0)),
        int(members.get("differing", 0)),
        None if error is None else float(error),
    )


def weight_name(step: Step) -> str:
    """Return the name of the tensor that a step makes, or of the weight that it quantizes."""
    return step.format.tensor_name(step.module) if isinstance(step, QuantizeStep) else step.output


class Verdicts:
    """The verdicts of the steps of a run, from comparisons in any order and from several threads."""

    def __init__(self) -> None:
        self._verdicts: dict[str, Verdict] = {}
        self._lock = Lock()

    def copied(self, name: str) -> None:
        """Note a tensor whose bytes are copied."""
        with self._lock:
            self._verdicts[name] = Verdict(Outcome.COPIED)

    def compare(self, name: str, expected: Array, held: Array, *, floats: bool) -> Inexact | None:
        """Compare the numbers of some rows of a tensor, f64 [rows, in], and return where they differ first; None if
        they do not. `floats`: whether it becomes floats, and not codes and scales.
        """
        unlike = compare_numbers(expected, held)
        equal = Outcome.WIDENED if floats else Outcome.EXACT
        with self._lock:
            known = self._verdicts.get(name, Verdict(equal))
            outcome, differing, largest = known.outcome, known.differing, known.largest_error
            if unlike is not None:
                outcome, differing = Outcome.ROUNDED, differing + unlike.count
                finite = largest is not None and isfinite(unlike.largest_error)
                largest = max(largest, unlike.largest_error) if finite and largest is not None else None
            self._verdicts[name] = Verdict(outcome, known.numbers + expected.size, differing, largest)
        return unlike

    def of(self, names: Iterable[str]) -> dict[str, Verdict]:
        """Return the verdicts of some tensors that are finished, by their names."""
        with self._lock:
            return {name: self._verdicts[name] for name in sorted(names)}

    @property
    def all(self) -> dict[str, Verdict]:
        """The verdicts of all tensors so far, by their names."""
        return self.of([*self._verdicts])
