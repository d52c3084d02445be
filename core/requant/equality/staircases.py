"""Staircases: the intervals on which a rule gives one outcome, found by bisection with the rule's own kernels.

Of each monotone segment (`requant.equality.steps`) the outcomes at both ends are computed, and then, for every
outcome between them, the first input that reaches it: all thresholds side by side, one call of the kernel for each
halving. Where a segment has fewer inputs than outcomes in between, all of them are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from requant.convert.explain.explanation import ContradictionError
from requant.equality.rules import Codes, Part, Rule
from requant.equality.steps import Segment, TooManySegmentsError, segments
from requant.errors.cancellation import check_cancelled, checked

MAX_THRESHOLDS = 1 << 17
"""Staircases with more are not looked for: to compute all inputs takes less."""
_FEW = 512
"""So many inputs are computed sooner than thresholds between them are found."""


@dataclass(frozen=True, slots=True)
class Staircase:
    """What a rule gives for a part of its inputs: `outcomes[i]` from `starts[i]` to before the next start.

    Where `undefined` it gives nothing. `part` has the steps by which that is so. A start is where the outcome changes,
    or where a monotone segment begins.
    """

    part: Part
    starts: Codes
    outcomes: Codes
    undefined: NDArray[np.bool_]


def staircase(rule: Rule, part: Part) -> Staircase | None:
    """Return the staircase of a rule for a part of its inputs; None where it is not proven to be one, or too long.

    Raise ContradictionError where the kernel is seen to differ from the steps.
    """
    if part.steps is None:
        return None
    try:
        pieces = segments(part.steps, part.lowest, part.highest)
    except TooManySegmentsError:
        return None
    defined = [piece for piece in pieces if not piece.undefined]
    ends = rule.outcomes(part, np.array([[each.lowest, each.highest] for each in defined], np.int64).ravel())
    starts = [np.array([piece.lowest for piece in pieces], np.int64)]
    rising: list[tuple[Segment, int, int]] = []
    thresholds = 0
    for piece, (first, last) in zip(defined, ends.reshape(-1, 2).tolist(), strict=True):
        inputs, between = piece.highest - piece.lowest + 1, abs(last - first)
        thresholds += min(inputs, between)
        if thresholds > MAX_THRESHOLDS:
            return None
        if between == 0:
            continue
        if inputs <= max(between, _FEW):
            starts.append(_changes(rule, part, piece))
        else:
            rising.append((piece, first, last))
    starts.append(_thresholds(rule, part, rising))
    return _staircase(rule, part, pieces, ascending(starts))


def ascending(codes: Sequence[Codes]) -> Codes:
    """Return all codes in order, each once. They are in order in pieces, which np.unique does not make use of."""
    found: Codes = np.sort(np.concatenate(codes), kind="stable")
    return found[np.append(True, found[1:] != found[:-1])] if found.size else found


def _changes(rule: Rule, part: Part, piece: Segment) -> Codes:
    """Return the inputs at which the outcome is another than before, of a segment that is computed as a whole."""
    check_cancelled()
    codes: Codes = np.arange(piece.lowest, piece.highest + 1, dtype=np.int64)
    outcomes = rule.outcomes(part, codes)
    changed: Codes = codes[1:][outcomes[1:] != outcomes[:-1]]
    return changed


def _thresholds(rule: Rule, part: Part, pieces: Sequence[tuple[Segment, int, int]]) -> Codes:
    """Return the first input that reaches each outcome between the ends of segments."""
    if not pieces:
        return np.empty(0, np.int64)
    targets, low, high, rises = [], [], [], []
    for piece, first, last in pieces:
        wanted = np.arange(first + 1, last + 1) if first < last else np.arange(last, first)
        targets.append(wanted)
        low.append(np.full(wanted.size, piece.lowest))
        high.append(np.full(wanted.size, piece.highest))
        rises.append(np.full(wanted.size, first < last))
    target, below, reached, rising = (np.concatenate(each) for each in (targets, low, high, rises))
    # The distance of two inputs of 64 bits does not fit int64; without a sign it does.
    while bool(np.any(reached.view(np.uint64) - below.view(np.uint64) > 1)):
        check_cancelled()
        middle = (below >> 1) + (reached >> 1) + (below & reached & 1)
        outcomes = rule.outcomes(part, middle)
        there = np.where(rising, outcomes >= target, outcomes <= target)
        reached = np.where(there, middle, reached)
        below = np.where(there, below, middle)
    return reached


def _staircase(rule: Rule, part: Part, pieces: Sequence[Segment], starts: Codes) -> Staircase:
    """Compute the outcome of each interval at both of its ends."""
    ends = np.append(starts[1:] - 1, part.highest)
    firsts = np.array([piece.lowest for piece in pieces], np.int64)
    of_piece = np.searchsorted(firsts, starts, side="right") - 1
    undefined = np.array([piece.undefined for piece in pieces])[of_piece]
    outcomes = np.zeros(starts.size, np.int64)
    kept = ~undefined
    array = rule.array(part, np.concatenate([starts[kept], ends[kept]]))
    stored = np.empty(array.size, rule.plan.output_dtype)
    fails = rule.convert(array, stored)
    at_starts, at_ends = np.split(rule.codes(stored), 2)
    if fails is not None or not np.array_equal(at_starts, at_ends):
        raise ContradictionError(f"{rule.text}: the kernel is no staircase of the steps {part.steps}")
    for index in checked(np.flatnonzero(undefined).tolist()):
        if rule.is_defined(part, int(starts[index])) or rule.is_defined(part, int(ends[index])):
            raise ContradictionError(f"{rule.text}: the kernel has an outcome where the steps have none")
    outcomes[kept] = at_starts
    return Staircase(part, starts, outcomes, undefined)
