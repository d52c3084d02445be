"""Which rules compute the outputs that were observed.

Candidates of the same arithmetic are run once, by the real kernels, on all calls. They are consistent if all bits are
those that were observed; that is a fact about these data, not a likelihood.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from requant.arrays.calls import ArrayCall
from requant.description import PlannedWork
from requant.errors import RequantError
from requant.errors.cancellation import check_cancelled
from requant.identification.arithmetic import arithmetic_key
from requant.identification.candidates import Candidate, Candidates, options_for
from requant.identification.outcomes import Mismatch, Outcome, outcome_of


@dataclass(slots=True)
class Group:
    """Candidates that are the same arithmetic for these calls, and what they compute.

    `outcomes`: of each call, unless it was `undefined`: then that says why.
    """

    candidates: list[Candidate]
    outcomes: list[Outcome] = field(default_factory=list)
    undefined: str = ""

    @property
    def mismatches(self) -> int:
        """How many elements of all calls differ."""
        return sum(each.mismatches for each in self.outcomes)

    @property
    def witness(self) -> tuple[int, Mismatch] | None:
        """The first call with an element that differs, and that element."""
        found = ((index, each.first) for index, each in enumerate(self.outcomes) if each.first is not None)
        return next(found, None)


@dataclass(slots=True)
class Identification:
    """`elements` were compared with what each candidate computes.

    `consistent` groups give all observed bits; `excluded` ones, by number of mismatches, give others; those in
    `undefined` refuse a call. `not_tried` were not reached in time.
    """

    elements: int = 0
    consistent: list[Group] = field(default_factory=list)
    excluded: list[Group] = field(default_factory=list)
    undefined: list[Group] = field(default_factory=list)
    not_tried: list[Candidate] = field(default_factory=list)


class _Search:
    """Groups by their arithmetic, as candidates are tried."""

    def __init__(self, calls: Sequence[ArrayCall], is_late: Callable[[], bool]) -> None:
        self._calls = calls
        self._is_late = is_late
        self.groups: dict[Hashable, Group] = {}
        self.not_tried: list[Candidate] = []

    def try_all(self, candidates: Iterator[Candidate], *, named: bool) -> None:
        """Try candidates. Those that are not `named` and the same arithmetic as others are not worth telling."""
        for candidate in candidates:
            check_cancelled()
            if self._is_late():
                self.not_tried.append(candidate)
                continue
            try:
                works = [call.planned(options_for(candidate, call)) for call in self._calls]
            except RequantError as error:
                self._refused(candidate, error)
                continue
            key = tuple(_key(each) for each in works)
            if key not in self.groups:
                self.groups[key] = self._run(candidate, works)
            elif named:
                self.groups[key].candidates.append(candidate)

    def _refused(self, candidate: Candidate, error: RequantError) -> None:
        self.groups.setdefault(error.detail, Group([], undefined=error.detail)).candidates.append(candidate)

    def _run(self, candidate: Candidate, works: Sequence[PlannedWork]) -> Group:
        try:
            outcomes = [outcome_of(call, work) for call, work in zip(self._calls, works, strict=True)]
        except RequantError as error:
            return Group([candidate], undefined=error.detail)
        return Group([candidate], outcomes)


def _key(work: PlannedWork) -> Hashable:
    """Return what tells the arithmetic of a work apart; of one without a plan, itself."""
    return id(work) if work.arithmetic is None else arithmetic_key(work.arithmetic)


def identify(
    calls: Sequence[ArrayCall],
    suspects: Sequence[str] | None = None,
    is_late: Callable[[], bool] = lambda: False,
) -> Identification:
    """Compare what each candidate computes with what was observed: all named rules, and then one of each arithmetic
    with parts replaced.

    `is_late` says that no further candidate is to be tried. Raise TypeFitError if an output has another number of
    elements than was observed, and UnknownNameError for an unknown suspect.
    """
    possible = Candidates(calls, suspects)
    search = _Search(calls, is_late)
    search.try_all(possible.named(), named=True)
    for group in [each for each in search.groups.values() if not each.undefined]:
        search.try_all(possible.replaced(group.candidates[0]), named=False)
    defined = [each for each in search.groups.values() if not each.undefined]
    elements = max((sum(each.elements for each in group.outcomes) for group in defined), default=0)
    return Identification(
        elements,
        consistent=[each for each in defined if not each.mismatches],
        excluded=sorted((each for each in defined if each.mismatches), key=lambda each: each.mismatches),
        undefined=[each for each in search.groups.values() if each.undefined],
        not_tried=search.not_tried,
    )
