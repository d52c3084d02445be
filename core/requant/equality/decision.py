"""Whether two rules give the same for every input, how many inputs differ, and which.

Part by part: where both rules are staircases (`requant.equality.staircases`) they are equal if and only if their
thresholds and outcomes are, and the inputs that differ are intervals, which are counted without computing them.
Elsewhere every input is computed (`requant.equality.sweep`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from requant.equality.rules import Array, Codes, Part, Rule
from requant.equality.staircases import Staircase, staircase
from requant.equality.steps import Steps, TooManySegmentsError, segments
from requant.equality.sweep import MAX_INPUTS, SAMPLES, Tally, sweep, thinned
from requant.errors import UnsupportedError
from requant.errors.cancellation import checked
from requant.plan.plan import Plan

Progress = Callable[[int, int], None]
"""Called with how many inputs are decided, and of how many."""


class Method(StrEnum):
    """How a part of the inputs was decided."""

    THRESHOLDS = "thresholds"
    """By the inputs at which outcomes change."""
    FORMULA = "formula"
    """Both rules are one exact formula, step by step, that is defined everywhere."""
    SWEEP = "sweep"
    """By computing every input."""


@dataclass(frozen=True, slots=True)
class Difference:
    """An input with another outcome by each rule: codes, None where a rule is undefined. `text` is its value."""

    code: int
    text: str
    first: int | None
    second: int | None


@dataclass(frozen=True, slots=True)
class Common:
    """Two staircases on the intervals that both of them have: `starts`, and the outcomes of each from there on."""

    starts: Codes
    ends: Codes
    staircases: tuple[Staircase, Staircase]
    outcomes: tuple[Codes, Codes]
    undefined: tuple[NDArray[np.bool_], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class PartDecision:
    """What was found of a part of the inputs. `common` is there if it was found by thresholds."""

    part: Part
    method: Method
    tally: Tally
    common: Common | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """What two rules have in common.

    `differing` inputs have two outcomes that are not the same; `only_first` and `only_second` have an outcome by one
    rule, and the other is undefined; `neither` is defined for the rest. `sample` are up to sixteen inputs that differ,
    in the order of their codes, part by part, the first and the last one among them.
    """

    first: Rule
    second: Rule
    inputs: int
    differing: int
    only_first: int
    only_second: int
    neither: int
    sample: tuple[Difference, ...]
    parts: tuple[PartDecision, ...]

    @property
    def equal(self) -> bool:
        """Whether both give the same for every input, and are defined for the same inputs."""
        return not (self.differing or self.only_first or self.only_second)

    @property
    def equal_where_defined(self) -> bool:
        """Whether both give the same wherever both are defined."""
        return not self.differing

    @property
    def is_certifiable(self) -> bool:
        """Whether all was decided by thresholds, which a certificate can show."""
        return all(each.method is Method.THRESHOLDS for each in self.parts)


def compare(
    first: Rule,
    second: Rule,
    *,
    progress: Progress | None = None,
    workers: int | None = None,
    thresholds: bool = True,
    limit: int = MAX_INPUTS,
) -> Equivalence:
    """Decide whether two rules give the same for every input.

    `workers`: threads for what has to be computed; as many as there are cores by default. Without `thresholds` every
    input is computed; of a part at most `limit` inputs are. What `requant.errors.cancellation.cancellation_check`
    raises ends it. Raise UnsupportedError for rules of other inputs or outcomes than one another, and for more than
    2^32 inputs that thresholds do not decide; LimitError for more than `limit`.
    """
    _check_comparable(first, second)
    total = sum(part.size for part in first.parts)
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    pairs = checked(zip(first.parts, second.parts, strict=True), 1)
    computing = _Computing(advance, workers, limit)
    decisions = [_decide(first, second, parts, computing, thresholds) for parts in pairs]
    tallies = [each.tally for each in decisions]
    found = [(each.part, code) for each in decisions for code in each.tally.found]
    return Equivalence(
        first=first,
        second=second,
        inputs=total,
        differing=sum(each.differing for each in tallies),
        only_first=sum(each.only_first for each in tallies),
        only_second=sum(each.only_second for each in tallies),
        neither=sum(each.neither for each in tallies),
        sample=tuple(_difference(first, second, *found[index]) for index in thinned(tuple(range(len(found))))),
        parts=tuple(decisions),
    )


def _outcome_name(plan: Plan) -> str:
    """Return what outcomes are compared as: integers of any width are numbers, floats are bits of their format."""
    dtype = plan.output_dtype
    element = plan.output_type.element
    name: str = getattr(element, "name", "")
    return name if dtype.kind == "f" or hasattr(element, "specials") else "integers"


def _check_comparable(first: Rule, second: Rule) -> None:
    for what, one, other in (
        ("inputs", first.input_name, second.input_name),
        ("outcomes", _outcome_name(first.plan), _outcome_name(second.plan)),
    ):
        if one != other:
            raise UnsupportedError(f"the {what} of the first rule are {one}, and those of the second {other}")


@dataclass(frozen=True, slots=True)
class _Computing:
    """How inputs are computed: by how many threads, and at most how many."""

    advance: Callable[[int], None]
    workers: int | None
    limit: int


def _decide(
    first: Rule, second: Rule, parts: tuple[Part, Part], computing: _Computing, thresholds: bool
) -> PartDecision:
    part = parts[0]
    if thresholds and (one := staircase(first, parts[0])) and (other := staircase(second, parts[1])):
        common = _in_common(one, other)
        tally = _tally(common)
        computing.advance(part.size)
        return PartDecision(part, Method.THRESHOLDS, tally, common)
    if thresholds and parts[0].steps is not None and parts[0].steps == parts[1].steps and _is_total(parts[0].steps):
        computing.advance(part.size)
        return PartDecision(part, Method.FORMULA, Tally(), None)
    return PartDecision(part, Method.SWEEP, _swept(first, second, parts, computing), None)


def _is_total(steps: Steps) -> bool:
    """Whether a formula gives an outcome for every input."""
    return not any(name == "within" and numbers[-1] is None for name, *numbers in steps)


def _in_common(one: Staircase, other: Staircase) -> Common:
    starts = np.union1d(one.starts, other.starts)
    ends = np.append(starts[1:] - 1, one.part.highest)
    places = [np.searchsorted(each.starts, starts, side="right") - 1 for each in (one, other)]
    return Common(
        starts,
        ends,
        (one, other),
        (one.outcomes[places[0]], other.outcomes[places[1]]),
        (one.undefined[places[0]], other.undefined[places[1]]),
    )


def _tally(common: Common) -> Tally:
    """Count the inputs of the intervals on which the outcomes differ."""
    starts, ends = common.starts, common.ends
    lacks_first, lacks_second = common.undefined
    both = ~lacks_first & ~lacks_second
    unequal = both & (common.outcomes[0] != common.outcomes[1])

    def count(rows: NDArray[np.bool_]) -> int:
        # Of 64 bits, neither the length of an interval nor the sum fits one of numpy's integers.
        return sum(end - start + 1 for start, end in zip(starts[rows].tolist(), ends[rows].tolist(), strict=True))

    rows = np.flatnonzero(unequal | (lacks_first != lacks_second))
    found: tuple[int, ...] = ()
    if rows.size:
        chosen = [rows[index] for index in thinned(tuple(range(rows.size)))]
        found = tuple(starts[chosen].tolist())
        last = int(ends[rows[-1]])
        if found[-1] != last:
            found = (*found[: SAMPLES - 1], last)
    return Tally(
        count(unequal), count(lacks_second & ~lacks_first), count(lacks_first & ~lacks_second),
        count(lacks_first & lacks_second), found,
    )  # fmt: skip


def _swept(first: Rule, second: Rule, parts: tuple[Part, Part], computing: _Computing) -> Tally:
    """Compute every input for which both rules may be defined, where their steps tell for which they are not."""
    part = parts[0]
    lacking = [_undefined(each) for each in parts]
    bounds = sorted({part.lowest, part.highest + 1, *(end for each in lacking for pair in each or () for end in pair)})
    total = Tally()
    for begin, end in pairwise(bounds):
        lacks_first, lacks_second = (any(low <= begin < high for low, high in each or ()) for each in lacking)
        size = end - begin
        if (not lacks_first and not lacks_second) or None in lacking:
            # What is known to be undefined need not be found out, one input after the other.
            rules = [
                replace(rule, masked=_all_undefined) if lacks else rule
                for rule, lacks in ((first, lacks_first), (second, lacks_second))
            ]
            total += sweep(
                rules[0], rules[1], part, (begin, end - 1), computing.advance, computing.workers, computing.limit
            )
            continue
        found = (begin, end - 1) if lacks_first != lacks_second else ()
        total += Tally(
            0,
            size if lacks_second and not lacks_first else 0,
            size if lacks_first and not lacks_second else 0,
            size if lacks_first and lacks_second else 0,
            found,
        )
        computing.advance(size)
    return total


def _all_undefined(array: Array, _: Array) -> NDArray[np.bool_]:
    """Say that a rule is undefined for all of these inputs."""
    return np.ones(array.size, np.bool_)


def _undefined(part: Part) -> list[tuple[int, int]] | None:
    """Return the intervals, from a code to before another, for which a rule is undefined by its steps; None where only
    its kernel tells.
    """
    if part.steps is None:
        return None
    try:
        pieces = segments(part.steps, part.lowest, part.highest)
    except TooManySegmentsError:
        return None
    return [(each.lowest, each.highest + 1) for each in pieces if each.undefined]


def _difference(first: Rule, second: Rule, part: Part, code: int) -> Difference:
    parts = {each.name: each for each in second.parts}
    full = code | part.sign if part.sign else code
    text = str(code) if first.source is None else repr(first.source.value(full))
    return Difference(full, text, first.outcome(part, code), second.outcome(parts[part.name], code))
