"""Selects the inputs worth testing by what an operation does with them, up to a given number.

Where results change, saturation begins, and the arithmetic is defined, is found by bisection over the ordinals of the
inputs, running the operation itself, until two inputs are adjacent. This is exact for any arithmetic; if an operation
is not monotone, it finds one of several such points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.explain.explanation import ElementExplanation, StepKind
from requant.convert.scaling import ScalingPlan
from requant.convert.small_floats import SMALL_FLOATS, small_float
from requant.convert.vectors.subject import Array, Draws, Element, Subject
from requant.errors import PreconditionError, TensorDataError
from requant.formats.elements import FloatElement, IntegerElement
from requant.formats.float_format import round_to_format
from requant.plan.float_arrays import COMPUTE_DTYPES, narrowed, widen
from requant.schemes import FixedPoint

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
        (value,) = in_order(subject.results([pattern(place)]), subject.output, np.array([sign * place])).tolist()
        return float(value)

    def pair(place: int) -> Pair:
        low, high = sorted((sign * (place - 1), sign * place))
        return low, high

    start, stop = sign * center, sign * end
    if start == stop or saturates(start) or not saturates(stop):
        return None, ()
    onset = first(saturates, start, stop)
    reached = result(onset)
    if result(stop) == reached:
        return pair(onset), ()
    return pair(onset), (pair(first(lambda place: result(place) != reached, onset, stop)),)


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
    if element.name in COMPUTE_DTYPES:
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
    thresholds = np.array(targets)
    at_ends = results(np.array([domain.lowest, domain.highest], np.int64))
    rises = at_ends[0] <= at_ends[1]

    def beyond(reached: Ordered) -> NDArray[np.bool_]:
        return reached >= thresholds if rises else reached < thresholds

    crossed = ~beyond(np.broadcast_to(at_ends[:1], thresholds.shape)) & beyond(
        np.broadcast_to(at_ends[1:], thresholds.shape)
    )
    low, high, thresholds = low[crossed], high[crossed], thresholds[crossed]
    while thresholds.size and bool(np.any(high.astype(object) - low.astype(object) > 1)):
        # Neither the sum nor the difference of two ordinals of f64 fits int64.
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        above = beyond(results(middle))
        # The midpoint of adjacent ordinals is the lower one.
        high = np.where(above, middle, high)
        low = np.where(above, low, middle)
    return list(zip(low.tolist(), high.tolist(), strict=True))


_INT32_MAXIMUM = (1 << 31) - 1
# Those of a multiplier, a scale or an offset are the same for all elements.
_OF_PARAMETERS = frozenset(
    {StepKind.SCALE, StepKind.RECIPROCAL, StepKind.FACTOR, StepKind.OFFSET, StepKind.MULTIPLIER, StepKind.SHIFT}
)
# Products are exact in int64 up to this precision.
_MAX_BITS = 24
_MAX_PRODUCTS = 8
# One in this many inputs of a set is random.
_DRAWN = 8


def has_tie(explained: ElementExplanation) -> bool:
    """Return whether a rounding step between the input and its result was a tie."""
    return any(step.tie and step.step not in _OF_PARAMETERS for step in explained.steps)


class Selection:
    """At most `most` patterns within a domain, added in order of importance."""

    def __init__(self, subject: Subject, domain: Domain, most: int) -> None:
        self.subject, self.domain, self.most = subject, domain, most
        self._patterns: dict[int, None] = {}

    @property
    def patterns(self) -> list[int]:
        """The selected patterns, in ascending order, then those without an order."""
        line = self.subject.line

        def place(pattern: int) -> tuple[bool, int, int]:
            ordinal = line.ordinal(pattern)
            return ordinal is None, ordinal or 0, pattern

        return sorted(self._patterns, key=place)

    @property
    def room(self) -> int:
        """How many more can be added."""
        return self.most - len(self._patterns)

    def add(self, *patterns: int) -> bool:
        """Add all of the patterns or none. Return whether there was room."""
        new = [each for each in dict.fromkeys(patterns) if each not in self._patterns]
        if len(new) > self.room:
            return False
        self._patterns.update(dict.fromkeys(new))
        return True

    def add_ordinals(self, *ordinals: int) -> bool:
        """Add those of the elements at these ordinals that are within the domain, all or none."""
        within = [each for each in ordinals if self.domain.lowest <= each <= self.domain.highest]
        return self.add(*map(self.subject.line.pattern, within))

    def add_pair(self, pair: Pair) -> bool:
        """Add adjacent inputs; if one is a tie, also its other neighbor, so that both sides of it are present."""
        low, high = pair
        _, (below, above), _ = self.subject.explained(list(map(self.subject.line.pattern, pair)))
        more = ([low - 1] if has_tie(below) else []) + ([high + 1] if has_tie(above) else [])
        return self.add_ordinals(*more, *pair)


def choose(subject: Subject, most: int, draws: Draws) -> list[int]:
    """Return at most `most` inputs of a subject, as patterns. Raise the operation's error if all inputs raise it."""
    domain = domain_of(subject)
    saturation = saturation_of(subject, domain)
    rising = saturation.rising(domain)
    selection = Selection(subject, domain, most - most // _DRAWN)
    for pattern in subject.line.special():
        if _is_defined(subject, pattern):
            selection.add(pattern)
    for ordinal in (domain.lowest, domain.highest, *_around_zero_point(subject)):
        selection.add_ordinals(ordinal)
    for pair in (saturation.low, saturation.high, *saturation.beyond):
        if pair is not None:
            selection.add_pair(pair)
    for group in (*_wraps(subject), *_products_that_tie(subject, domain, draws)):
        selection.add_ordinals(*group)
    for pair in steps(subject, rising, _targets(subject, draws, selection.room)):
        if not selection.add_pair(pair):
            break
    selection.most = most
    _draw(selection, rising, draws)
    return selection.patterns


def _is_defined(subject: Subject, pattern: int) -> bool:
    try:
        subject.report(pattern)
    except (PreconditionError, TensorDataError):
        return False
    return True


def _around_zero_point(subject: Subject) -> Iterator[int]:
    zero_point = subject.parameters.get("input_zero_point", subject.parameters.get("zero_point"))
    if isinstance(subject.input, IntegerElement) and zero_point is not None:
        yield from (int(zero_point), int(zero_point) + 1, int(zero_point) - 1)


def _targets(subject: Subject, draws: Draws, room: int) -> list[float] | list[int]:
    """Return the results whose steps are searched: the first, the last, those around the zero point, and random
    ones."""
    results = results_in_order(subject.output)
    if not results or room < 2:
        return []
    zero = subject.parameters.get("output_zero_point", subject.parameters.get("zero_point", 0))
    middle = min(range(len(results)), key=lambda index: abs(results[index] - zero))
    places = [1, len(results) - 1, middle, middle + 1, middle - 1, middle + 2]
    # All of them, or random ones, with repetitions.
    drawn = range(1, len(results)) if len(results) <= room // 2 else (draws.below(len(results)) for _ in range(room))
    wanted = dict.fromkeys(place for place in (*places, *drawn) if 0 < place < len(results))
    return [results[place] for place in wanted][: room // 2]


def _scaling(subject: Subject) -> ScalingPlan | None:
    plan = subject.explainer(subject.place.shape(1)).plan
    return plan if isinstance(plan, ScalingPlan) else None


def _wraps(subject: Subject) -> Iterator[tuple[int, int]]:
    """Yield adjacent inputs of which one is so large that its left shift wraps, and the other is not."""
    plan = _scaling(subject)
    if plan is None or not isinstance(plan.scheme.stage, FixedPoint):
        return
    zero_point = int(subject.parameters.get("input_zero_point", 0))
    multiplier = plan.multipliers[subject.place.channel if len(plan.multipliers) > 1 else 0]
    left = max(31 - plan.scheme.stage.prepare(multiplier).shift, 0)
    if left:
        largest = _INT32_MAXIMUM >> left
        yield largest + zero_point, largest + 1 + zero_point
        yield -largest - 2 + zero_point, -largest - 1 + zero_point


def _products_that_tie(subject: Subject, domain: Domain, draws: Draws) -> Iterator[tuple[int, int, int]]:
    """Yield inputs whose exact result is a tie, each between its neighbors.

    A product with an odd number over 2^e ends in a half for odd multiples of 2^(e - 1), and for no others.
    """
    if isinstance(subject.output, FloatElement):
        yield from _floats_that_tie(subject, draws)
        return
    plan = _scaling(subject)
    if plan is None:
        return
    multiplier = plan.multipliers[subject.place.channel if len(plan.multipliers) > 1 else 0]
    factors = [plan.scheme.represented(multiplier)]
    stage = plan.scheme.stage
    if isinstance(stage, FixedPoint):
        prepared = stage.prepare(multiplier)
        factors.append(Fraction(prepared.multiplier << max(31 - prepared.shift, 0), 1 << 31))
    zero_point = int(subject.parameters.get("input_zero_point", 0))
    reach = max(domain.highest - zero_point, zero_point - domain.lowest)
    for half in dict.fromkeys(factor.denominator >> 1 for factor in factors):
        if not 0 < half <= reach:
            continue
        odd = [1, -1, 3, -3, *(2 * draws.between(-reach // half // 2, reach // half // 2) + 1 for _ in range(4))]
        for times in odd:
            tie = times * half + zero_point
            yield tie - 1, tie, tie + 1


def _floats_that_tie(subject: Subject, draws: Draws) -> Iterator[tuple[int, int, int]]:
    """Yield stored integers whose product with the scale needs exactly one bit more than the output has."""
    scale, element = subject.parameters.get("scale"), subject.output
    assert isinstance(element, FloatElement)
    if scale is None or not isinstance(subject.input, IntegerElement) or subject.input.width > 16:
        return
    if element.precision > _MAX_BITS:
        return
    zero_point = int(subject.parameters["zero_point"])
    numerator = Fraction(round_to_format(scale, element)).numerator
    numerator //= numerator & -numerator
    stored = np.arange(subject.input.minimum, subject.input.maximum + 1)
    # At most 17 and 24 bits.
    products = np.abs(stored - zero_point) * numerator
    odd = products // np.maximum(products & -products, 1)
    ties = stored[np.frexp(odd.astype(np.float64))[1] == element.precision + 1].tolist()
    for _ in range(min(len(ties), _MAX_PRODUCTS)):
        tie = ties[draws.below(len(ties))]
        yield tie - 1, tie, tie + 1


def _draw(selection: Selection, rising: Domain, draws: Draws) -> None:
    """Fill the rest at random: half uniform over the range that does not saturate, half with random bits."""
    subject, domain = selection.subject, selection.domain
    # If there are few inputs, most draws repeat earlier ones.
    for turn in range(4 * selection.room):
        if not selection.room:
            break
        if turn % 2:
            selection.add_ordinals(draws.between(domain.lowest, domain.highest))
        elif isinstance(subject.input, FloatElement) and subject.input.name in COMPUTE_DTYPES:
            selection.add_ordinals(_between(subject, subject.input, rising, draws))
        else:
            selection.add_ordinals(draws.between(rising.lowest, rising.highest))


def _between(subject: Subject, element: FloatElement, rising: Domain, draws: Draws) -> int:
    """Return the ordinal of a float drawn uniformly between two."""
    dtype = element.tensor_dtype
    patterns = [subject.line.pattern(each) for each in (rising.lowest, rising.highest)]
    ends = [Fraction(float(each)) for each in widen(subject.line.array(patterns, dtype), element)]
    value = ends[0] + (ends[1] - ends[0]) * Fraction(draws.below(1 << 32), 1 << 32)
    narrow = narrowed(np.array([float(value)], COMPUTE_DTYPES[element.name]), element)
    ordinal = subject.line.ordinal(int(narrow.view(f"<u{dtype.itemsize}")[0]))
    return 0 if ordinal is None else ordinal
