"""Which rules compute the outputs that were observed, and what to try next.

A candidate is consistent if all bits are those that were observed, and excluded if one is not. Both are facts about
these data, and no likelihoods: candidates are computed by the real kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.description import Operation
from requant.errors.cancellation import LateError, check_cancelled, deadline, until_late
from requant.identification.candidates import Candidate, Candidates, options_for
from requant.identification.channels import granularity_of
from requant.identification.derivations import Derivation, DerivationSearch, derivation_search
from requant.identification.divergence import Divergence, first_divergence
from requant.identification.outcomes import compared_outputs
from requant.identification.patterns import Difference, Pattern, patterns
from requant.identification.probes import Probe, outcomes_of, probes_of
from requant.identification.readings import ConsistentReading, consistent_readings
from requant.identification.reduction import Reduced, reduced
from requant.identification.search import Group, Search
from requant.identification.separation import Class, separate
from requant.identification.synthesis import Synthesis, synthesize
from requant.identification.trials import compare_on_trials
from requant.identification.unknowns import Contradiction, Interval, channels_without

# Of excluded groups, so many are compared step by step with a consistent one.
_MAX_DIVERGENCES = 8


@dataclass(frozen=True, slots=True)
class Consistent:
    """Groups of candidates that no input told apart. `proven`: they are the same for every input.

    `derivations`: by the index of a call, what derives its parameters from its input.
    """

    groups: tuple[Group, ...]
    proven: bool
    derivations: Mapping[int, Sequence[Derivation]] = field(default_factory=dict)

    @property
    def candidates(self) -> list[Candidate]:
        """All candidates."""
        return [each for group in self.groups for each in group.candidates]

    @property
    def parameters(self) -> dict[int, list[Interval]]:
        """What fits, of each call in which scales or multipliers are not known, by the first candidate."""
        found = self.groups[0].parameters
        return {index: [each for each in listed if isinstance(each, Interval)] for index, listed in found.items()}


@dataclass(frozen=True, slots=True)
class Excluded:
    """Candidates that compute other bits. `divergence`: from the first consistent ones, at the first element."""

    group: Group
    divergence: Divergence | None

    @property
    def contradictions(self) -> dict[int, list[Contradiction]]:
        """Why nothing fits, of each call in which that is so, and of its channels."""
        found: dict[int, list[Contradiction]] = {}
        for index in self.group.contradicted:
            listed = self.group.parameters[index]
            without = channels_without(listed)
            found[index] = [each for each in listed if isinstance(each, Contradiction) and each.channel in without]
        return found


@dataclass(frozen=True, slots=True)
class Unexplained:
    """What is known where no candidate is consistent: what the elements have in common that differ from the nearest
    candidate, the readings with which a candidate is, and without any the simplest rule that gives what was observed.
    """

    call: int
    nearest: Candidate
    patterns: tuple[tuple[Pattern, str], ...]
    readings: tuple[ConsistentReading, ...]
    synthesis: Synthesis | None


@dataclass(frozen=True, slots=True)
class Identification:
    """`elements` were compared with what each candidate computes.

    `consistent` ones give all observed bits; `excluded` ones, by number of mismatches, give others; those in
    `undefined` refuse a call. `probes` are inputs that tell consistent ones apart. `not_tried` were not reached in
    time. `unexplained` is there where nothing is consistent.
    """

    elements: int
    consistent: tuple[Consistent, ...]
    probes: tuple[Probe, ...]
    excluded: tuple[Excluded, ...]
    undefined: tuple[Group, ...]
    not_tried: tuple[Candidate, ...]
    unexplained: Unexplained | None


def identify(
    calls: Sequence[ArrayCall],
    suspects: Sequence[str] | None = None,
    is_late: Callable[[], bool] = lambda: False,
    axis: int | None = None,
    block_sizes: Sequence[int] | None = None,
    operations: Mapping[str, Operation] | None = None,
    *,
    derive_known: bool = False,
) -> Identification:
    """Compare what each candidate computes with what was observed.

    Where scales or multipliers are not known, there is one of a call, or one for each index of `axis`, or each block.
    With `operations`, by name, what derives the scales that fit is looked for; `derive_known`: known scales, too.
    Once `is_late` says so, nothing further is tried. Raise TypeFitError if an output has another number of
    elements than was observed, UnknownNameError for an unknown suspect, and UnsupportedError for unknown scales that
    are not looked for.
    """
    with deadline(is_late):
        return _identify(calls, suspects, is_late, axis, block_sizes, operations, derive_known=derive_known)


def _identify(
    calls: Sequence[ArrayCall],
    suspects: Sequence[str] | None,
    is_late: Callable[[], bool],
    axis: int | None,
    block_sizes: Sequence[int] | None,
    operations: Mapping[str, Operation] | None,
    *,
    derive_known: bool,
) -> Identification:
    search = Search(calls, axis, block_sizes)
    search.run(Candidates(calls, suspects))
    groups = search.groups
    fitting = [each for each in groups if each.is_consistent]
    wrong = [each for each in groups if not (each.is_consistent or each.undefined)]
    wrong.sort(key=lambda each: (each.mismatches, len(each.contradicted)))
    consistent, probes = _classes(calls, fitting, is_late)
    if operations is not None:
        granularity = partial(granularity_of, axis=axis, block_sizes=block_sizes)
        of_calls = {
            index: derivation_search(call, operations, granularity(call))
            for index, call in enumerate(calls)
            if "input" in call.types and (derive_known or any(index in each.parameters for each in consistent))
        }
        searches = {index: each for index, each in of_calls.items() if each is not None}
        consistent = tuple(replace(each, derivations=_derivations(each, searches)) for each in consistent)
    return Identification(
        elements=max((sum(each.elements for each in group.outcomes.values()) for group in groups), default=0),
        consistent=consistent,
        probes=probes,
        excluded=tuple(_excluded(calls, wrong, fitting)),
        undefined=tuple(each for each in groups if each.undefined),
        not_tried=tuple(search.not_tried),
        unexplained=None if fitting or not wrong else _unexplained(calls, suspects, wrong[0]),
    )


def _classes(
    calls: Sequence[ArrayCall], fitting: Sequence[Group], is_late: Callable[[], bool]
) -> tuple[tuple[Consistent, ...], tuple[Probe, ...]]:
    """Return the consistent groups in classes that inputs tell apart, and such inputs."""
    if any(each.parameters for each in fitting):
        return tuple(Consistent((each,), proven=True) for each in fitting), ()
    if not fitting:
        return (), ()
    candidates = [each.candidates[0] for each in fitting]
    found = separate(calls, candidates, is_late)
    classes = found.classes
    probes: list[Probe] = []
    try:
        probes += probes_of(calls, _firsts(candidates, found.classes), found.inputs)
        for index in found.others:
            check_cancelled()
            classes, more = _split(index, calls[index], candidates, classes, is_late)
            probes += more
    except LateError:
        if found.others:
            # Calls that were not looked at may tell more of them apart.
            classes = tuple(Class(each.candidates, each.proven and len(each.candidates) == 1) for each in classes)
    if found.others:
        probes = list(_of_classes(probes, calls, _firsts(candidates, classes)))
    consistent = (Consistent(tuple(fitting[place] for place in each.candidates), each.proven) for each in classes)
    return tuple(consistent), tuple(probes)


def _firsts(candidates: Sequence[Candidate], classes: Sequence[Class]) -> list[Candidate]:
    return [candidates[each.candidates[0]] for each in classes]


def _of_classes(
    probes: Sequence[Probe], calls: Sequence[ArrayCall], candidates: Sequence[Candidate]
) -> Iterator[Probe]:
    """Yield probes with the outcomes of the classes as they are in the end, of each the first candidate."""
    with suppress(LateError):
        for each in probes:
            outcomes = outcomes_of(each.asked, candidates, compared_outputs(calls[each.call]))
            yield replace(each, outcomes=outcomes)


def _split(
    index: int,
    call: ArrayCall,
    candidates: Sequence[Candidate],
    classes: Sequence[Class],
    is_late: Callable[[], bool],
) -> tuple[tuple[Class, ...], list[Probe]]:
    """Return finer classes by one call that has no rules of single numbers, and what tells them apart."""
    probes, signatures, complete = compare_on_trials(index, call, candidates, is_late)
    finer: list[Class] = []
    for each in classes:
        members: dict[bytes, list[int]] = {}
        for place in each.candidates:
            members.setdefault(signatures[place], []).append(place)
        finer += [Class(tuple(one), (each.proven and complete) or len(one) == 1) for one in members.values()]
    return tuple(finer), probes


def _derivations(consistent: Consistent, searches: Mapping[int, DerivationSearch]) -> dict[int, list[Derivation]]:
    parameters = consistent.parameters
    found = {index: each.derivations(parameters.get(index)) for index, each in searches.items()}
    return {index: each for index, each in found.items() if each}


def _excluded(calls: Sequence[ArrayCall], wrong: Sequence[Group], fitting: Sequence[Group]) -> list[Excluded]:
    found = []
    for place, group in enumerate(wrong):
        divergence = None
        if fitting and group.witness is not None and place < _MAX_DIVERGENCES:
            call, mismatch = group.witness
            candidates = group.candidates[0], fitting[0].candidates[0]
            divergence = first_divergence(calls[call], mismatch.index, *candidates)
        found.append(Excluded(group, divergence))
    return found


def _unexplained(calls: Sequence[ArrayCall], suspects: Sequence[str] | None, nearest: Group) -> Unexplained | None:
    """Return what the elements have in common that the nearest candidate gives otherwise, in the first such call, and
    what would explain all, as far as it is found before it is late.
    """
    if nearest.witness is None:
        return None
    index = nearest.witness[0]
    candidate = nearest.candidates[0]
    found: tuple[tuple[Pattern, str], ...] = ()
    readings: tuple[ConsistentReading, ...] = ()
    synthesis = None
    with suppress(LateError):
        check_cancelled()
        if (numbers := reduced(calls[index])) is not None:
            # Each step over many millions of elements takes seconds.
            check_cancelled()
            call = calls[index]
            computed = call.result(call.planned(options_for(candidate, call))).outputs["output"].data
            check_cancelled()
            difference = _difference(numbers, computed.astype(np.int64))
            check_cancelled()
            found = tuple(until_late(patterns(difference)))
            check_cancelled()
        readings = tuple(until_late(consistent_readings(calls, suspects)))
        if not readings:
            check_cancelled()
            synthesis = synthesize([reduced(each) for each in calls])
    return Unexplained(index, candidate, found, readings, synthesis)


def _difference(numbers: Reduced, computed: np.ndarray) -> Difference:
    return Difference(
        numbers.shape,
        computed,
        numbers.observed,
        inputs=numbers.real,
        exact=numbers.exact,
        bounds=numbers.bounds,
        least_normal=numbers.least_normal,
    )
