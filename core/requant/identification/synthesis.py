"""Synthesis: the simplest rule, made of parts, that gives what was observed where no known rule does.

All combinations of the parts are tried, the simplest first, on the elements that tell them apart best; what is right
there is computed for all elements. Elements that no rule explains are named, and never explained away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from requant.description import Array
from requant.errors.cancellation import until_late
from requant.identification.parts import Bounding, Scaling, Stored, boundings, rule_formulas
from requant.identification.reduction import Reduced, joined

# Elements near a tie, near an integer, and spread over all, that rules are tried on first.
_SAMPLE = 256
# Of the rules that are wrong for some elements, so many are computed for all.
_FINALISTS = 8
# More than that of all elements is no rule with exceptions, but the wrong rule.
_EXCEPTIONS = 1 / 1024


@dataclass(frozen=True, slots=True)
class UnexplainedElement:
    """An element of a call, by its flat index, that the rule gives otherwise than was observed."""

    call: int
    index: int
    observed: int
    computed: int


@dataclass(frozen=True, slots=True)
class Synthesis:
    """A rule, the elements that it does not explain, and how many rules were tried.

    `scaling` and `bounding` are None if no rule explains nearly all elements.
    """

    scaling: Scaling | None
    bounding: Bounding | None
    unexplained: tuple[UnexplainedElement, ...]
    tried: int

    @property
    def formulas(self) -> list[str]:
        """The steps of the rule; none without one."""
        return [] if self.scaling is None or self.bounding is None else rule_formulas(self.scaling, self.bounding)


def _taken(stored: Stored, places: Array) -> Stored:
    """Return some of the elements."""
    taken: dict[str, Any] = {name: None if each is None else each[places] for name, each in stored.arrays().items()}
    return Stored(**taken)


def _sample(stored: Stored) -> Array:
    """Return the places of elements near a tie and near an integer, and of some others, in order."""
    real = stored.exact
    beyond = real - np.floor(real)
    size = min(_SAMPLE, real.size)
    with np.errstate(all="ignore"):
        ties = np.argpartition(np.abs(beyond - 0.5), size - 1)[:size]
        wholes = np.argpartition(np.minimum(beyond, 1 - beyond), size - 1)[:size]
    spread = np.linspace(0, real.size - 1, size).astype(int)
    found: Array = np.unique(np.concatenate([ties, wholes, spread]))
    return found


def synthesize(calls: Sequence[Reduced | None]) -> Synthesis | None:
    """Return the simplest rule that gives what was observed in all calls, of all ways to scale and to bound. None if
    calls are no single numbers, or not all of one kind.
    """
    numbers = [each for each in calls if each is not None]
    if len(numbers) < len(calls) or len({each.kind for each in numbers}) != 1:
        return None
    whole = joined(numbers)
    if not whole.observed.size:
        return Synthesis(None, None, (), 0)
    sizes = np.cumsum([0, *(each.observed.size for each in numbers)])
    scaling, bounding, places, tried = _simplest(whole)
    if scaling is None or bounding is None:
        return Synthesis(None, None, (), tried)
    computed = bounding.compute(scaling.compute(whole.stored))
    of_call = np.searchsorted(sizes, places, side="right") - 1
    elements = tuple(
        UnexplainedElement(int(call), int(place - sizes[call]), int(whole.observed[place]), int(computed[place]))
        for call, place in zip(of_call, places, strict=True)
    )
    return Synthesis(scaling, bounding, elements, tried)


def _simplest(numbers: Reduced) -> tuple[Scaling | None, Bounding | None, Array, int]:
    """Return a rule, the places that it does not explain, and how many were tried."""
    stored, observed = numbers.stored, numbers.observed
    sampled = _sample(stored)
    few, few_observed = _taken(stored, sampled), observed[sampled]
    ways = boundings(*numbers.bounds, observed, _offset(numbers))
    finalists: list[tuple[int, int, Scaling, Bounding]] = []
    tried = 0
    for order, scaling in enumerate(until_late(numbers.scalings)):
        integers = scaling.compute(few)
        for bounding in ways:
            tried += 1
            wrong = int(np.count_nonzero(bounding.compute(integers) != few_observed))
            if wrong == 0:
                places = _unexplained(scaling, bounding, stored, observed)
                if not places.size:
                    return scaling, bounding, places, tried
            finalists.append((wrong, order, scaling, bounding))
        if len(finalists) > 64 * _FINALISTS:
            finalists = sorted(finalists, key=lambda each: each[:2])[:_FINALISTS]
    finalists = sorted(finalists, key=lambda each: each[:2])[:_FINALISTS]
    exceptions = [
        _unexplained(scaling, bounding, stored, observed) for _, _, scaling, bounding in until_late(finalists)
    ]
    if not exceptions:
        return None, None, np.zeros(0, np.int64), tried
    best = min(range(len(exceptions)), key=lambda each: exceptions[each].size)
    if exceptions[best].size > max(1, int(observed.size * _EXCEPTIONS)):
        return None, None, exceptions[best][:0], tried
    _, _, scaling, bounding = finalists[best]
    return scaling, bounding, exceptions[best], tried


def _offset(numbers: Reduced) -> int:
    """Return by about how much all elements within the bounds are off."""
    lowest, highest = numbers.bounds
    with np.errstate(all="ignore"):
        expected = numbers.exact + numbers.stored.output_zero_points
    within = (numbers.observed > lowest) & (numbers.observed < highest) & np.isfinite(expected)
    return int(np.rint(np.median((numbers.observed - expected)[within]))) if within.any() else 0


def _unexplained(scaling: Scaling, bounding: Bounding, stored: Stored, observed: Array) -> Array:
    """Return the places of the elements that a rule gives otherwise."""
    return np.flatnonzero(bounding.compute(scaling.compute(stored)) != observed)
