"""What to try next: inputs on which candidates differ, or the proof that there are none.

Candidates become rules of single numbers, for one channel at a time: a conversion is one, and a product is one of its
sums. A rule that is proven to be a staircase is known by its thresholds, so that two rules which agree at the
thresholds of both agree everywhere; others are compared at these numbers only, and nothing is claimed of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TypeVar

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.description import Array
from requant.equality.rules import Part, Rule, rule_of
from requant.equality.staircases import Staircase, staircase
from requant.errors import RequantError
from requant.identification.candidates import Candidate, options_for
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
# Rules are compared at so many inputs of each part besides; of rules without a proof, at no others of their own.
_SPREAD = 1 << 12


@dataclass(frozen=True, slots=True)
class DecidingInput:
    """An input that tells candidates apart: of which call and channel, as the plan takes it, and what each class of
    candidates gives, as it is stored.
    """

    call: int
    channel: int
    value: Array
    outcomes: Array


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
    """Return the rule of each candidate for one channel of a call, or None where there are none of single numbers."""
    rules = []
    for candidate in candidates:
        plan = _plan(call, candidate, channel)
        if plan is None:
            return None
        rules.append(rule_of(plan, ", ".join(f"{name} {value}" for name, value in candidate)))
    return rules


def _plan(call: ArrayCall, candidate: Candidate, channel: int) -> Plan | None:
    if set(call.types) == {"input"}:
        narrowed = _of_channel(call, channel)
        plan = None if narrowed is None else narrowed.planned(options_for(candidate, call)).arithmetic
        return plan if isinstance(plan, Plan) else None
    plan = call.planned(options_for(candidate, call)).arithmetic
    if isinstance(plan, ProductPlan) and plan.stage is not None:
        blocks = plan.stage.granularity.count
        return plan.stage.of_block(min(channel, blocks - 1), _ELEMENTS)
    return None


def _of_channel(call: ArrayCall, channel: int) -> ArrayCall | None:
    """Return a conversion of many elements that have the parameters of one channel, which stay along an axis."""
    source, target = call.types["input"].element, _element(call.options.get("output_type"))
    if any(isinstance(each, UniformSubChannelType) for each in (source, target)):
        return None
    shape = (1, _ELEMENTS)
    options = dict(call.options)
    if target is not None:
        options["output_type"] = one_channel(target, channel)
    return replace(call, types={"input": TensorType(shape, one_channel(source, channel))}, options=options)


def one_channel(element: _AnyType, channel: int) -> _AnyType:
    """Return a type with the parameters of one channel, along the first axis; another type as it is."""
    if not isinstance(element, UniformPerAxisType):
        return element
    scales, zero_points = (element.scales[channel],), (element.zero_points[channel],)
    return replace(element, axis=0, scales=scales, zero_points=zero_points)


def separate(
    calls: Sequence[ArrayCall],
    candidates: Sequence[Candidate],
    is_late: Callable[[], bool] = lambda: False,
) -> Separation:
    """Return what tells candidates apart. They have to be defined for all calls.

    Channels are looked at one after the other until all candidates are apart.
    """
    signatures: list[tuple[bytes, ...]] = [()] * len(candidates)
    splits = np.zeros((len(candidates), 0), np.int64)
    certain = np.ones(len(candidates), np.bool_)
    inputs: list[DecidingInput] = []
    others = []
    for index, call in enumerate(calls):
        for channel in range(channel_count(call)):
            if len(set(signatures)) == len(candidates):
                break
            if is_late():
                certain[:] = False
                break
            try:
                rules = rules_of(call, candidates, channel)
            except RequantError:
                rules = None
            if rules is None:
                others.append(index)
                break
            for position in range(len(rules[0].parts)):
                codes, outcomes, stairs = _outcomes(rules, position)
                certain &= stairs
                signatures = [
                    (*known, blake2b(row.tobytes()).digest()) for known, row in zip(signatures, outcomes, strict=True)
                ]
                differs = first_of_each_split(outcomes)
                splits = np.concatenate([splits, outcomes[:, differs]], axis=1)
                values = rules[0].array(rules[0].parts[position], codes[differs])
                inputs += [
                    DecidingInput(index, channel, values[place], outcomes[:, column])
                    for place, column in enumerate(differs.tolist())
                ]
    return _separated(signatures, splits, inputs, certain, tuple(others))


def _outcomes(rules: Sequence[Rule], position: int) -> tuple[Array, Array, Array]:
    """Return the inputs of one part of them at which any rule may change, and those before; the outcomes of all rules
    there; and of which rules it is proven that they are constant in between.
    """
    part = rules[0].parts[position]
    count = min(part.size, _SPREAD)
    # Codes of f64 have 63 bits, more than a float holds.
    spread = part.lowest + np.arange(count, dtype=np.int64) * (part.size // count)
    spread = np.append(spread, part.highest)
    found = [
        staircase(rule, rule.parts[position])
        if index < _MAX_PROVEN and _outcome_bits(rule) <= _MAX_OUTCOME_BITS
        else None
        for index, rule in enumerate(rules)
    ]
    starts = np.unique(np.concatenate([spread, *(each.starts for each in found if each is not None)]))
    codes = np.unique(np.concatenate([starts, np.maximum(starts - 1, part.lowest)]))
    # What one of them refuses is no input to try.
    codes = codes[np.logical_and.reduce([_defined(*each, part, codes) for each in zip(rules, found, strict=True)])]
    outcomes = np.stack([rule.outcomes(part, codes) for rule in rules])
    return codes, outcomes, np.array([each is not None or part.size <= _SPREAD for each in found])


def _defined(rule: Rule, stairs: Staircase | None, part: Part, codes: Array) -> Array:
    """Return for which codes a rule has an outcome."""
    if stairs is not None:
        defined: Array = ~stairs.undefined[np.searchsorted(stairs.starts, codes, side="right") - 1]
        return defined
    if rule.convert(rule.array(part, codes), np.empty(codes.size, rule.plan.output_dtype)) is None:
        return np.ones(codes.size, np.bool_)
    return np.array([rule.is_defined(part, code) for code in codes.tolist()])


def _outcome_bits(rule: Rule) -> int:
    """Return how many bits an outcome has: the more there are, the more thresholds."""
    return 8 * rule.plan.output_dtype.itemsize


def _separated(
    signatures: Sequence[tuple[bytes, ...]],
    splits: Array,
    inputs: Sequence[DecidingInput],
    certain: Array,
    others: tuple[int, ...],
) -> Separation:
    """Choose the fewest inputs and return them with the classes."""
    members: dict[tuple[bytes, ...], list[int]] = {}
    for place, signature in enumerate(signatures):
        members.setdefault(signature, []).append(place)
    classes = tuple(Class(tuple(each), len(each) == 1 or bool(certain[each].all())) for each in members.values())
    outcomes = splits[[each[0] for each in members.values()]]
    chosen = tuple(replace(inputs[each], outcomes=outcomes[:, each]) for each in fewest(outcomes))
    return Separation(classes, chosen, others)


def fewest(outcomes: Array) -> list[int]:
    """Return the columns, at most 16, that tell all rows apart: one after the other that splits the most."""
    chosen: list[int] = []
    groups = np.zeros(len(outcomes), np.int64)
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
