"""Synthesis: the simplest rule, made of parts, that gives what was observed where no known rule does.

All combinations of the parts are tried, the simplest first, on the elements that tell them apart best; what is right
there is computed for all elements. Elements that no rule explains are named, and never explained away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from requant.description import Array
from requant.errors.cancellation import check_cancelled
from requant.identification.parts import Bounding, Scaling, Stored, boundings, rule_formulas

# Elements near a tie, near an integer, and spread over all, that rules are tried on first.
_SAMPLE = 1024
# Of the rules that are wrong for some elements, so many are computed for all.
_FINALISTS = 8
# More than that of all elements is no rule with exceptions, but the wrong rule.
_EXCEPTIONS = 1 / 64


@dataclass(frozen=True, slots=True)
class Synthesis:
    """The rule as formulas, the flat indices of the elements that it does not explain, and how many were tried.

    Without a rule that explains nearly all elements, there are no formulas.
    """

    formulas: tuple[str, ...]
    unexplained: tuple[int, ...]
    tried: int


def _taken(stored: Stored, places: Array) -> Stored:
    """Return some of the elements."""
    arrays = {name: getattr(stored, name) for name in Stored.__slots__}
    taken: dict[str, Any] = {name: None if each is None else each[places] for name, each in arrays.items()}
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


def synthesize(
    stored: Stored,
    observed: Array,
    bounds: tuple[int, int],
    scalings: Sequence[Scaling],
    is_late: Callable[[], bool] = lambda: False,
) -> Synthesis:
    """Return the simplest rule that gives the observed integers, of `scalings` and all ways to bound.

    `bounds`: those of the storage.
    """
    if not observed.size:
        return Synthesis((), (), 0)
    places = _sample(stored)
    few, few_observed = _taken(stored, places), observed[places]
    ways = boundings(*bounds, observed)
    finalists: list[tuple[int, int, Scaling, Bounding]] = []
    tried = 0
    for order, scaling in enumerate(scalings):
        check_cancelled()
        integers = scaling.compute(few)
        for bounding in ways:
            tried += 1
            wrong = int(np.count_nonzero(bounding.compute(integers) != few_observed))
            if wrong == 0:
                unexplained = _unexplained(scaling, bounding, stored, observed)
                if not unexplained.size:
                    return Synthesis(tuple(rule_formulas(scaling, bounding)), (), tried)
            finalists.append((wrong, order, scaling, bounding))
        if len(finalists) > 64 * _FINALISTS:
            finalists = sorted(finalists, key=lambda each: each[:2])[:_FINALISTS]
        if is_late():
            break
    finalists = sorted(finalists, key=lambda each: each[:2])[:_FINALISTS]
    exceptions = []
    for index, (_, _, scaling, bounding) in enumerate(finalists):
        unexplained = _unexplained(scaling, bounding, stored, observed)
        exceptions.append((unexplained.size, index, unexplained))
        if is_late():
            break
    count, index, unexplained = min(exceptions, key=lambda each: each[:2])
    if count > max(1, int(observed.size * _EXCEPTIONS)):
        return Synthesis((), (), tried)
    _, _, scaling, bounding = finalists[index]
    return Synthesis(tuple(rule_formulas(scaling, bounding)), tuple(unexplained.tolist()), tried)


def _unexplained(scaling: Scaling, bounding: Bounding, stored: Stored, observed: Array) -> Array:
    """Return the places of the elements that a rule gives otherwise."""
    check_cancelled()
    return np.flatnonzero(bounding.compute(scaling.compute(stored)) != observed)
