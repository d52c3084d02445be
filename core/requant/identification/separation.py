"""What to try next: inputs on which candidates differ, or the proof that there are none.

Candidates become rules of single numbers, for one channel at a time: a conversion is one, and a product is one of its
sums. A rule that is proven to be a staircase is known by its thresholds, so that two rules which agree at the
thresholds of both agree everywhere, and so do two rules of one formula. Others are compared at these numbers only, and
nothing is claimed of the rest. Where a rule is not defined, it is not compared with others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TypeVar

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.arrays.elements import numpy_dtype
from requant.description import Array
from requant.equality.rules import Rule, rule_of
from requant.equality.staircases import Staircase, ascending, staircase
from requant.equality.steps import TooManySegmentsError, segments
from requant.errors import RequantError
from requant.errors.cancellation import LateError
from requant.identification.candidates import Candidate, options_for
from requant.identification.outcomes import stored_float
from requant.identification.sums import SumRule, bounds_of_sums
from requant.integer.product import ProductPlan
from requant.mlir.types import TensorType, Type, UniformPerAxisType, UniformSubChannelType
from requant.plan.plan import Plan

_AnyType = TypeVar("_AnyType", bound=Type)

MAX_INPUTS = 16
"""At most so many inputs are proposed."""
# A tensor so large that none of its elements is among the last ones, which some systems convert otherwise.
_ELEMENTS = 1 << 40
# Staircases of the first rules are looked for, if they have no more than 2^16 steps.
_MAX_PROVEN, _MAX_OUTCOME_BITS = 64, 16
# Parts of so many inputs are compared as a whole. Of others rules are compared at as many inputs as `_SPREAD` besides
# the steps of staircases: of rules without a proof, at no others of their own.
_WHOLE, _SPREAD = 1 << 16, 1 << 12
# Of so many inputs outcomes are compared at once.
_AT_ONCE = 1 << 14
# So many inputs that a rule is not defined for are found one after the other.
_MAX_REFUSED = 1 << 11
# As outcomes: there is none; and any NaN.
_NONE = np.iinfo(np.int64).min
_NAN = _NONE + 1


@dataclass(frozen=True, slots=True)
class DecidingInput:
    """An input that tells candidates apart: of which call and channel, as the plan takes it, and what each class of
    candidates gives, as it is stored.
    """

    call: int
    channel: int
    value: Array
    outcomes: Array

    @property
    def is_defined(self) -> bool:
        """Whether no class refuses it."""
        return not (self.outcomes == _NONE).any()


@dataclass(frozen=True, slots=True)
class Class:
    """Candidates, by their places, that no input told apart. `proven`: they are the same for every input."""

    candidates: tuple[int, ...]
    proven: bool


@dataclass(frozen=True, slots=True)
class Separation:
    """Candidates in classes, and as few inputs as tell the classes apart. `others`: the calls that were not looked at,
    since they are no rules of single numbers.
    """

    classes: tuple[Class, ...]
    inputs: tuple[DecidingInput, ...]
    others: tuple[int, ...]


def channel_count(call: ArrayCall) -> int:
    """Return how many channels of a call have parameters of their own."""
    types: list[Type | None] = [*call.types.values(), call.options.get("output_type")]
    counts = [len(getattr(_element(each), "scales", (0,))) for each in types]
    return max(counts, default=1)


def _element(type_: Type | None) -> Type | None:
    return type_.element if isinstance(type_, TensorType) else type_


def rules_of(call: ArrayCall, candidates: Sequence[Candidate], channel: int) -> list[Rule] | None:
    """Return the rule of each candidate for one channel of a call, or None where there are none of single numbers.

    Those of a product are for sums that 4096 products make up.
    """
    rules: list[Rule] = []
    bounds = None if set(call.types) == {"input"} else bounds_of_sums(call, channel)
    for candidate in candidates:
        text = ", ".join(f"{name} {value}" for name, value in candidate)
        planned = _planned(call, candidate, channel)
        if isinstance(planned, ProductPlan) and planned.stage is not None and bounds is not None:
            blocks = planned.stage.granularity.count
            stage = planned.stage.of_block(min(channel, blocks - 1), _ELEMENTS)
            rules.append(SumRule.of(rule_of(stage, text), planned.accumulation, bounds))
        elif isinstance(planned, Plan):
            rules.append(rule_of(planned, text))
        else:
            return None
    return rules


def _planned(call: ArrayCall, candidate: Candidate, channel: int) -> object | None:
    """Return the plan of a product, or of one channel of a conversion."""
    asked = _of_channel(call, channel) if set(call.types) == {"input"} else call
    return None if asked is None else asked.planned(options_for(candidate, asked)).arithmetic


def _of_channel(call: ArrayCall, channel: int) -> ArrayCall | None:
    """Return a conversion of many elements that have the parameters of one channel, which stay along an axis, or of one
    block. None for parameters along two axes, of which every pair is a rule.
    """
    source, target = call.types["input"].element, _element(call.options.get("output_type"))
    along: set[object] = {each.axis for each in (source, target) if isinstance(each, UniformPerAxisType)}
    along |= {each.blocks for each in (source, target) if isinstance(each, UniformSubChannelType)}
    if len(along) > 1:
        return None
    shape = (1, _ELEMENTS)
    options = dict(call.options)
    if target is not None:
        options["output_type"] = one_channel(target, channel)
    return replace(call, types={"input": TensorType(shape, one_channel(source, channel))}, options=options)


def one_channel(element: _AnyType, channel: int) -> _AnyType:
    """Return a type with the parameters of one channel, along the first axis, or of one block, which spans the second;
    another type as it is.
    """
    if not isinstance(element, UniformPerAxisType | UniformSubChannelType):
        return element
    one = replace(element, scales=(element.scales[channel],), zero_points=(element.zero_points[channel],))
    if isinstance(one, UniformPerAxisType):
        return replace(one, axis=0)
    return replace(one, blocks=((0, 1), (1, _ELEMENTS)), scale_shape=(1, 1))


def separate(
    calls: Sequence[ArrayCall],
    candidates: Sequence[Candidate],
    is_late: Callable[[], bool] = lambda: False,
) -> Separation:
    """Return what tells candidates apart. They have to be defined for all calls.

    Channels are looked at one after the other until all candidates are apart.
    """
    classes = _Classes(len(candidates))
    inputs: list[DecidingInput] = []
    others = []
    for index, call in enumerate(calls):
        for channel in range(channel_count(call)):
            tied = classes.tied()
            if not tied.size:
                break
            if is_late():
                classes.certain[tied] = False
                break
            try:
                rules = rules_of(call, [candidates[each] for each in tied.tolist()], channel)
                of_all = rules_of(call, candidates, channel) if tied.size < len(candidates) else rules
            except RequantError:
                rules = of_all = None
            except LateError:
                classes.certain[tied] = False
                break
            if rules is None or of_all is None:
                others.append(index)
                break
            for position, part in enumerate(rules[0].parts):
                if is_late():
                    classes.certain[tied] = False
                    break
                codes = _refined(classes, tied, rules, position, is_late)
                outcomes = np.stack([_outcomes_at(rule, position, codes)[0] for rule in of_all])
                values = rules[0].array(part, codes)
                inputs += [
                    DecidingInput(index, channel, values[place], outcomes[:, place]) for place in range(codes.size)
                ]
    return _separated(classes, inputs, tuple(others))


def _refined(
    classes: _Classes, tied: Array, rules: Sequence[Rule], position: int, is_late: Callable[[], bool]
) -> Array:
    """Tell candidates apart by what their rules give for one part. Return the inputs that do."""
    # Of rules that are known to be the same, the first stands for all.
    same = _of_one_kind(rules, position, classes.sure(tied))
    firsts = list(dict.fromkeys(same))
    places = np.array([firsts.index(each) for each in same])
    compared = [rules[each] for each in firsts]
    inputs = _inputs(compared, position, is_late)
    deciding, certain = [], inputs.proven.copy()
    # Each time inputs from all over the part.
    step = -(-inputs.codes.size // _AT_ONCE)
    for first in range(step):
        if first and is_late():
            classes.certain[tied] = False
            break
        codes = np.ascontiguousarray(inputs.codes[first::step])
        found = [_outcomes_at(rule, position, codes) for rule in compared]
        known = np.array([each for _, each in found])
        outcomes = np.stack([each for each, _ in found])
        certain &= known
        deciding.append(codes[classes.refine(tied, outcomes[places], known[places])])
    classes.doubt_unless(certain, tied, places)
    return np.concatenate(deciding)


class _Classes:
    """Candidates in classes that outcomes told apart, and of which it is `certain` that no others do."""

    def __init__(self, count: int) -> None:
        self.of_candidate = np.zeros(count, np.int64)
        self.certain = np.ones(count, np.bool_)

    def members(self) -> list[Array]:
        """Return the candidates of each class, in the order of its first."""
        return [np.flatnonzero(self.of_candidate == each) for each in dict.fromkeys(self.of_candidate.tolist())]

    def tied(self) -> Array:
        """Return the candidates that are not alone."""
        tied = [each for each in self.members() if each.size > 1]
        return np.concatenate([*tied, np.zeros(0, np.int64)]).astype(np.int64)

    def sure(self, candidates: Array) -> list[int | None]:
        """Return the class of each candidate, None where it is not certain that no others belong to it."""
        return [int(self.of_candidate[each]) if self.certain[each] else None for each in candidates.tolist()]

    def refine(self, candidates: Array, outcomes: Array, known: Array) -> Array:
        """Tell candidates apart by their outcomes, a row for each, first where all have one, then by what some of them
        refuse, if that is known. Return the columns that split a class, of those that split it alike the first.
        """
        deciding: list[Array] = []
        labels = self.of_candidate[candidates]
        for label in np.unique(labels).tolist():
            rows = np.flatnonzero(labels == label)
            given = outcomes[rows]
            defined = given != _NONE
            everywhere = defined.all(axis=0)
            compared = given[:, everywhere]
            self._split(candidates[rows], compared, label)
            deciding.append(np.flatnonzero(everywhere)[first_of_each_split(compared)])
            if everywhere.all():
                continue
            if known[rows].all():
                deciding.append(self._by_refusals(candidates[rows], given, ~everywhere))
            else:
                self._doubt(candidates[rows], given[:, ~everywhere])
        return np.unique(np.concatenate(deciding))

    def doubt_unless(self, certain: Array, candidates: Array, places: Array) -> None:
        """Of candidates of one class, of which not all have one place, nothing is certain but what it is of places."""
        for label in np.unique(self.of_candidate[candidates]).tolist():
            rows = np.flatnonzero(self.of_candidate[candidates] == label)
            if np.unique(places[rows]).size > 1:
                self.certain[candidates[rows]] &= certain[places[rows]]

    def _split(self, candidates: Array, outcomes: Array, label: int) -> None:
        """Give candidates of one class that have other outcomes than the first a class of their own."""
        classes: dict[bytes, int] = {}
        for candidate, numbers in zip(candidates.tolist(), outcomes, strict=True):
            fresh = int(self.of_candidate.max()) + 1 if classes else label
            self.of_candidate[candidate] = classes.setdefault(blake2b(numbers.tobytes()).digest(), fresh)

    def _by_refusals(self, candidates: Array, outcomes: Array, somewhere: Array) -> Array:
        """Tell those apart that are one still, by the columns in which not all have outcomes; return such columns."""
        columns = np.flatnonzero(somewhere)
        deciding = [np.zeros(0, np.int64)]
        for label in np.unique(self.of_candidate[candidates]).tolist():
            rows = np.flatnonzero(self.of_candidate[candidates] == label)
            refused = outcomes[rows][:, columns]
            deciding.append(columns[first_of_each_split(refused)])
            self._split(candidates[rows], refused, label)
        return np.concatenate(deciding)

    def _doubt(self, candidates: Array, outcomes: Array) -> None:
        """Of candidates of one class that differ where others are not defined, nothing is certain."""
        for label in np.unique(self.of_candidate[candidates]).tolist():
            rows = self.of_candidate[candidates] == label
            given = outcomes[rows]
            highest = given.max(axis=0)
            if ((given != highest) & (given != _NONE)).any():
                self.certain[candidates[rows]] = False


def _of_one_kind(rules: Sequence[Rule], position: int, classes: Sequence[int | None]) -> list[int]:
    """Return for each rule the place of the first that is the same in a part: which has the same formula, or which
    makes the same number of sums beyond int32 and is of one class by the first part, where int32 holds them.
    """
    known: dict[object, int] = {}
    found = []
    for place, (rule, class_) in enumerate(zip(rules, classes, strict=True)):
        key: object = rule.parts[position].steps
        if position and isinstance(rule, SumRule) and rule.holds_all_of_int32 and class_ is not None:
            key = rule.overflow, class_
        found.append(place if key is None else known.setdefault(key, place))
    return found


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Inputs of a part, and which rules are constant between any two of these where it is known what they refuse."""

    codes: Array
    proven: Array


def _inputs(rules: Sequence[Rule], position: int, is_late: Callable[[], bool]) -> _Inputs:
    """Return the inputs of one part at which any rule may change, and those before. Of rules for which it is late,
    nothing is proven.
    """
    part = rules[0].parts[position]
    if len(rules) == 1:
        return _Inputs(np.array([part.lowest]), np.ones(1, np.bool_))
    if part.size <= _WHOLE:
        return _Inputs(part.lowest + np.arange(part.size, dtype=np.int64), np.ones(len(rules), np.bool_))
    # Codes of f64 have 63 bits, more than a float holds.
    spread = part.lowest + np.arange(_SPREAD, dtype=np.int64) * (part.size // _SPREAD)
    stairs = [
        _staircase_in_time(rule, position)
        if index < _MAX_PROVEN and _outcome_bits(rule) <= _MAX_OUTCOME_BITS and not is_late()
        else None
        for index, rule in enumerate(rules)
    ]
    known_starts = [each.starts for each in stairs if each is not None]
    starts = ascending([spread, np.array([part.highest]), *known_starts])
    codes = ascending([starts, np.maximum(starts - 1, part.lowest)])
    return _Inputs(codes, np.array([each is not None for each in stairs]))


def _staircase_in_time(rule: Rule, position: int) -> Staircase | None:
    try:
        return staircase(rule, rule.parts[position])
    except LateError:
        return None


def _outcomes_at(rule: Rule, position: int, codes: Array) -> tuple[Array, bool]:
    """Return the outcomes of inputs of a part, all NaNs as one, and whether it is known where there is none.

    A rule without steps says only which is the first input that it is not defined for: it is asked for the rest, until
    there are too many.
    """
    part = rule.parts[position]
    array, stored = rule.array(part, codes), np.empty(codes.size, rule.plan.output_dtype)
    fails = rule.convert(array, stored)
    outcomes = rule.codes(stored)
    if (element := stored_float(rule.plan.output_type.element)) is not None:
        nan = np.isnan(stored.view(numpy_dtype(element)))
        if nan.any():
            outcomes[nan] = _NAN
    if fails is None:
        return outcomes, True
    try:
        pieces = None if part.steps is None else segments(part.steps, part.lowest, part.highest)
    except (TooManySegmentsError, LateError):
        pieces = None
    if pieces is None:
        for _ in range(_MAX_REFUSED):
            outcomes[fails] = _NONE
            more = rule.convert(array[fails + 1 :], stored[fails + 1 :])
            if more is None:
                return outcomes, True
            fails += 1 + more
        outcomes[fails:] = _NONE
        return outcomes, False
    of_piece = np.searchsorted(np.array([each.lowest for each in pieces]), codes, "right") - 1
    outcomes[np.array([each.undefined for each in pieces])[of_piece]] = _NONE
    return outcomes, True


def _outcome_bits(rule: Rule) -> int:
    """Return how many bits an outcome has: the more there are, the more thresholds."""
    return 8 * rule.plan.output_dtype.itemsize


def _separated(classes: _Classes, inputs: Sequence[DecidingInput], others: tuple[int, ...]) -> Separation:
    """Choose the fewest inputs and return them with the classes."""
    members = classes.members()
    found = tuple(Class(tuple(each.tolist()), each.size == 1 or bool(classes.certain[each].all())) for each in members)
    if not inputs:
        return Separation(found, (), others)
    # What is defined for all goes first.
    inputs = sorted(inputs, key=lambda each: not each.is_defined)
    outcomes = np.stack([each.outcomes for each in inputs], axis=1)[[int(each[0]) for each in members]]
    chosen = tuple(replace(inputs[each], outcomes=outcomes[:, each]) for each in fewest(outcomes))
    return Separation(found, chosen, others)


def fewest(outcomes: Array, first: Sequence[int] = ()) -> list[int]:
    """Return the columns, at most 16, that tell all rows apart: those that are the first, then one after the other that
    splits the most.
    """
    chosen = list(first)
    groups = np.unique(outcomes[:, chosen], axis=0, return_inverse=True)[1].reshape(-1)
    while len(chosen) < MAX_INPUTS and outcomes.size:
        counts = _group_counts(groups, outcomes)
        place = int(np.argmax(counts))
        if counts[place] == len(np.unique(groups)):
            break
        chosen.append(place)
        groups = np.unique(np.stack([groups, outcomes[:, place]]), axis=1, return_inverse=True)[1].reshape(-1)
    return chosen


def first_of_each_split(outcomes: Array) -> Array:
    """Return the columns in which outcomes differ; of those that lie equally far from their first outcome, which split
    candidates alike, the first.
    """
    distances = outcomes - outcomes[:1]
    weights = np.random.default_rng(0).integers(1, 1 << 62, len(outcomes)) | 1
    found = np.sort(np.unique(weights @ distances, return_index=True)[1])
    differ: Array = found[(distances[:, found] != 0).any(axis=0)]
    return differ


def _group_counts(groups: Array, splits: Array) -> Array:
    """Return into how many groups each column would split these."""
    order = np.lexsort((splits, np.broadcast_to(groups[:, np.newaxis], splits.shape)), axis=0)
    of_group, outcomes = groups[order], np.take_along_axis(splits, order, axis=0)
    differs = (of_group[1:] != of_group[:-1]) | (outcomes[1:] != outcomes[:-1])
    counts: Array = 1 + np.count_nonzero(differs, axis=0)
    return counts
