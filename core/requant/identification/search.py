"""Candidates in groups of the same arithmetic, each run once by the real kernels on all calls."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from requant.arrays.calls import ArrayCall
from requant.description import PlannedWork
from requant.errors import RequantError
from requant.errors.cancellation import LateError, check_cancelled
from requant.identification.arithmetic import arithmetic_key
from requant.identification.candidates import Candidate, Candidates, options_for
from requant.identification.channels import RowSearch, search_for
from requant.identification.outcomes import Mismatch, Outcome, outcome_of, tensor_outputs
from requant.identification.scales import ScaleSearch
from requant.identification.unknowns import Contradiction, Interval, channels_without


@dataclass(slots=True)
class Group:
    """Candidates that are the same arithmetic for these calls, and what they compute.

    `outcomes`: of each call whose parameters are known; `parameters`: of each call of which a scale or a multiplier is
    not known, by its index. `undefined` says why a call is refused, where one is.
    """

    candidates: list[Candidate]
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    parameters: dict[int, list[Interval | Contradiction]] = field(default_factory=dict)
    undefined: str = ""

    @property
    def mismatches(self) -> int:
        """How many elements of all calls differ."""
        return sum(each.mismatches for each in self.outcomes.values())

    @property
    def contradicted(self) -> list[int]:
        """The calls for which nothing fits, or not for all channels."""
        return [index for index, found in self.parameters.items() if not found or channels_without(found)]

    @property
    def is_consistent(self) -> bool:
        """Whether every observed bit is what is computed, with some scales where they are not known."""
        return not (self.undefined or self.mismatches or self.contradicted)

    @property
    def witness(self) -> tuple[int, Mismatch] | None:
        """The first call with an element that differs, and that element."""
        found = ((index, each.first) for index, each in self.outcomes.items() if each.first is not None)
        return next(found, None)


class Search:
    """Groups by their arithmetic, as candidates are tried.

    Raise UnsupportedError for a call with unknown scales of a kind that is not looked for.
    """

    def __init__(
        self, calls: Sequence[ArrayCall], axis: int | None = None, block_sizes: Sequence[int] | None = None
    ) -> None:
        self._calls = calls
        searches = ((index, search_for(call, axis, block_sizes)) for index, call in enumerate(calls))
        self._unknown: dict[int, ScaleSearch | RowSearch] = {}
        with suppress(LateError):
            # Where it is late already, no candidate is tried.
            self._unknown = {index: search for index, search in searches if search is not None}
        self._observes_numbers = any(set(each.observed) - tensor_outputs(each.operation) for each in calls)
        self._groups: dict[Hashable, Group] = {}
        self.not_tried: list[Candidate] = []

    @property
    def groups(self) -> list[Group]:
        """All groups, in the order in which they were found."""
        return list(self._groups.values())

    def run(self, candidates: Candidates) -> None:
        """Try all named rules, and then one of each arithmetic with parts replaced."""
        self.run_named(candidates)
        for group in self.groups:
            if not group.undefined:
                self._try_all(candidates.replaced(group.candidates[0]), named=False)

    def run_named(self, candidates: Candidates) -> None:
        """Try all named rules."""
        self._try_all(candidates.named(), named=True)

    def _try_all(self, candidates: Iterator[Candidate], *, named: bool) -> None:
        """Try candidates until it is late. Those that are not `named` and the same arithmetic as others are not worth
        telling.
        """
        for candidate in candidates:
            try:
                check_cancelled()
                self._try(candidate, named=named)
            except LateError:
                self.not_tried.append(candidate)

    def _try(self, candidate: Candidate, *, named: bool) -> None:
        try:
            works = self._planned(candidate)
        except RequantError as error:
            if named:
                refused = self._groups.setdefault(error.detail, Group([], undefined=error.detail))
                refused.candidates.append(candidate)
        else:
            self._add(candidate, works, named=named)

    def _add(self, candidate: Candidate, works: dict[int, PlannedWork], *, named: bool) -> None:
        """Put a candidate into the group of its arithmetic, or into a new one that is run."""
        key: Hashable = tuple(_key(each) for each in works.values())
        group = None
        if self._unknown or self._observes_numbers:
            # The same plan for one scale may be another for the next: the scales that fit have to be the same, too.
            # Schemes write multipliers of the same arithmetic in conventions of their own.
            group = self._run(candidate, works)
            numbers = tuple(each.numbers for each in group.outcomes.values())
            key = (key, group.undefined, numbers, tuple(map(tuple, group.parameters.values())))
        known = self._groups.get(key)
        if known is not None:
            if named:
                known.candidates.append(candidate)
            return
        group = group or self._run(candidate, works)
        if named or not group.undefined:
            self._groups[key] = group

    def _planned(self, candidate: Candidate) -> dict[int, PlannedWork]:
        """Plan the calls, with a scale that is possible where it is not known."""
        works = {}
        for index, call in enumerate(self._calls):
            known = self._unknown[index].example(candidate) if index in self._unknown else call
            works[index] = known.planned(options_for(candidate, call))
        return works

    def _run(self, candidate: Candidate, works: dict[int, PlannedWork]) -> Group:
        group = Group([candidate])
        try:
            group.outcomes = {
                index: outcome_of(self._calls[index], work)
                for index, work in works.items()
                if index not in self._unknown
            }
            group.parameters = {index: list(search.intervals(candidate)) for index, search in self._unknown.items()}
        except RequantError as error:
            return Group([candidate], undefined=error.detail)
        return group


def _key(work: PlannedWork) -> Hashable:
    """Return what tells the arithmetic of a work apart; of one without a plan, what is equal to nothing else."""
    return object() if work.arithmetic is None else arithmetic_key(work.arithmetic)
