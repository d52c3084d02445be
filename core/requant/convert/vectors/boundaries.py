"""Where the result of an operation changes, where saturation begins, and where the arithmetic is defined.

Found by bisection over the ordinals of the inputs, running the operation itself, until the two inputs are adjacent.
This is exact for any arithmetic; if an operation is not monotone, it finds one of several such points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.small_floats import SMALL_FLOATS, small_float
from requant.convert.vectors.number_line import Array
from requant.convert.vectors.subject import Element, Subject
from requant.errors import PreconditionError, TensorDataError
from requant.formats.elements import FloatElement
from requant.plan.lanes import LANES, widen

Ordered = NDArray[Any]

# For output types with more values the steps are not listed.
_MAX_RESULTS = 1 << 16


@dataclass(frozen=True, slots=True)
class Domain:
    """The ordinals from the lowest to the highest input that the arithmetic is defined for."""

    lowest: int
    highest: int

    def clipped(self, ordinal: int) -> int:
        """Return the nearest ordinal within."""
        return min(max(ordinal, self.lowest), self.highest)


def first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return an ordinal at which `holds` turns true: it is false at the one before.

    It must be false at `low` and true at `high`.
    """
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def domain_of(subject: Subject) -> Domain:
    """Return what a subject is defined for: all finite inputs, or those around the one that is scaled to 0.

    Raise what the operation raises for that one.
    """
    line = subject.line
    center = min(max(int(subject.parameters.get("input_zero_point", 0)), line.lowest), line.highest)
    subject.report(line.pattern(center))

    def refused(ordinal: int) -> bool:
        try:
            subject.report(line.pattern(ordinal))
        except (PreconditionError, TensorDataError):
            return True
        return False

    lowest = -first(lambda ordinal: refused(-ordinal), -center, -line.lowest) + 1 if refused(line.lowest) else None
    highest = first(refused, center, line.highest) - 1 if refused(line.highest) else None
    return Domain(line.lowest if lowest is None else lowest, line.highest if highest is None else highest)


Pair = tuple[int, int]
"""Adjacent ordinals, the lower one first."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """The adjacent inputs at which saturation begins, if any.

    Where a system does not clamp what int32 cannot hold, `beyond` are those at which the result changes once more.
    """

    low: Pair | None
    high: Pair | None
    beyond: tuple[Pair, ...]

    def rising(self, domain: Domain) -> Domain:
        """Return the part of a domain in which results change."""
        return Domain(
            domain.lowest if self.low is None else self.low[0], domain.highest if self.high is None else self.high[1]
        )


def saturation_of(subject: Subject, domain: Domain) -> Saturation:
    """Return where a subject begins to saturate, going from the zero point towards either end."""
    low, below = _saturation_at(subject, domain, -1)
    high, above = _saturation_at(subject, domain, 1)
    return Saturation(low, high, (*below, *above))


def _saturation_at(subject: Subject, domain: Domain, sign: int) -> tuple[Pair | None, tuple[Pair, ...]]:
    """Return the adjacent inputs where saturation begins below (-1) or above (1), and where the result changes next."""
    line = subject.line
    center = domain.clipped(int(subject.parameters.get("input_zero_point", 0)))
    end = domain.lowest if sign < 0 else domain.highest

    def pattern(place: int) -> int:
        return line.pattern(sign * place)

    def saturates(place: int) -> bool:
        report = subject.report(pattern(place))
        return report.saturated_low + report.saturated_high > 0

    def result(place: int) -> float:
        (found,) = in_order(subject.results([pattern(place)]), subject.output, np.array([sign * place])).tolist()
        return float(found)

    def pair(place: int) -> Pair:
        low, high = sorted((sign * (place - 1), sign * place))
        return low, high

    start, stop = sign * center, sign * end
    if start == stop or saturates(start) or not saturates(stop):
        return None, ()
    found = first(saturates, start, stop)
    reached = result(found)
    if result(stop) == reached:
        return pair(found), ()
    return pair(found), (pair(first(lambda place: result(place) != reached, found, stop)),)


@cache
def results_in_order(element: Element) -> list[float] | list[int]:
    """Return the distinct results of a type, ascending; none where there are more than 65,536."""
    if not isinstance(element, FloatElement):
        return [*range(element.minimum, element.maximum + 1)] if element.width <= 16 else []
    if element.name not in SMALL_FLOATS:
        return []
    format_ = small_float(element.name)
    values = {format_.value(code) for code in range(1 << format_.width)}
    return sorted(value for value in values if value == value)


def in_order(results: Array, element: Element, ordinals: NDArray[Any]) -> Ordered:
    """Return results as comparable numbers. NaN is beyond all others, on the side of its input."""
    if not isinstance(element, FloatElement):
        return results.astype(np.int64)
    if element.name in LANES:
        values = widen(results, element).astype(np.float64)
    else:
        format_ = small_float(element.name)
        values = np.array([format_.value(code) for code in range(1 << format_.width)])[results]
    return np.where(np.isnan(values), np.where(ordinals < 0, -inf, inf), values)


def steps(subject: Subject, domain: Domain, targets: Sequence[float]) -> list[Pair]:
    """Return, for each target that is reached, the adjacent inputs between which the result rises to it."""
    line, element = subject.line, subject.output

    def results(ordinals: NDArray[Any]) -> Ordered:
        return in_order(subject.results([line.pattern(each) for each in ordinals.tolist()]), element, ordinals)

    low, high = (np.full(len(targets), end, np.int64) for end in (domain.lowest, domain.highest))
    wanted = np.array(targets)
    at_ends = results(np.array([domain.lowest, domain.highest], np.int64))
    rises = at_ends[0] <= at_ends[1]

    def beyond(found: Ordered) -> NDArray[np.bool_]:
        return found >= wanted if rises else found < wanted

    crossed = ~beyond(np.broadcast_to(at_ends[:1], wanted.shape)) & beyond(np.broadcast_to(at_ends[1:], wanted.shape))
    low, high, wanted = low[crossed], high[crossed], wanted[crossed]
    while wanted.size and bool(np.any(high.astype(object) - low.astype(object) > 1)):
        # Neither the sum nor the difference of two ordinals of f64 fits int64.
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        above = beyond(results(middle))
        # The midpoint of adjacent ordinals is the lower one.
        high = np.where(above, middle, high)
        low = np.where(above, low, middle)
    return list(zip(low.tolist(), high.tolist(), strict=True))
