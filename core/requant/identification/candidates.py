"""What may have computed the outputs of calls: named rules, and rules of which parts are replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from requant.arrays.calls import ArrayCall, read_option
from requant.description import Chooses, Kind, Option, PlannedWork
from requant.errors import ParameterError, RequantError, UnknownNameError
from requant.errors.cancellation import check_cancelled
from requant.errors.names import did_you_mean

Candidate = tuple[tuple[str, Any], ...]
"""The options that choose the arithmetic, by name, each as a caller writes it; absent ones have their defaults."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An option that may have any of some values, the first of which is the default. None is an absent option."""

    name: str
    values: tuple[Any, ...]


class Candidates:
    """The candidates for calls. `suspects` are the only values that are tried, of all options together.

    Raise UnknownNameError for a suspect that is no value of an option.
    """

    def __init__(self, calls: Sequence[ArrayCall], suspects: Sequence[str] | None = None) -> None:
        self._rules = _choices(calls, Chooses.RULES)
        self._parts = _choices(calls, Chooses.PART)
        if suspects is not None:
            _check(suspects, [*self._rules, *self._parts])
            self._rules = _among(self._rules, suspects)
            self._parts = [Choice(each.name, (None, *_of(each, suspects))) for each in self._parts]

    def named(self) -> Iterator[Candidate]:
        """Yield all named rules, the likeliest first: each value of the first option alone, then with one of the others
        too, then with two.
        """
        if not self._rules:
            yield ()
            return
        [first, *others] = self._rules
        for count in range(len(others) + 1):
            for added in combinations(others, count):
                for values in product(first.values, *(each.values[1:] for each in added)):
                    yield _candidate([first, *added], values)

    def replaced(self, candidate: Candidate) -> Iterator[Candidate]:
        """Yield a candidate with one part replaced, then with two, and so on."""
        for count in range(1, len(self._parts) + 1):
            for replaced in combinations(self._parts, count):
                for values in product(*(each.values[1:] for each in replaced)):
                    yield candidate + _candidate(replaced, values)


def _candidate(choices: Sequence[Choice], values: Sequence[Any]) -> Candidate:
    chosen = zip(choices, values, strict=True)
    return tuple((each.name, value) for each, value in chosen if value is not None)


def _choices(calls: Sequence[ArrayCall], chooses: Chooses) -> list[Choice]:
    """Return the options that are not known, in the order of the descriptions; of each the values that any of the
    operations has.
    """
    choices: dict[str, Choice] = {}
    for call in calls:
        for option in call.operation.options:
            if option.chooses is chooses and option.name not in call.options:
                earlier = choices[option.name].values if option.name in choices else ()
                values = (each for each in values_of(option) if each not in earlier)
                choices[option.name] = Choice(option.name, (*earlier, *values))
    return list(choices.values())


def values_of(option: Option) -> tuple[Any, ...]:
    """Return what an option may be, the default first; of one that is required, only its choices."""
    known: Sequence[Any] = (False, True)
    if option.kind is not Kind.BOOLEAN:
        assert option.choices is not None, option.name
        known = [str(each) for each in option.choices.values]
    if option.required:
        return tuple(known)
    default = str(option.default) if isinstance(option.default, str) else option.default
    return (default, *(each for each in known if each != default))


def _of(choice: Choice, suspects: Sequence[str]) -> tuple[Any, ...]:
    return tuple(value for value in choice.values if value in suspects)


def _check(suspects: Sequence[str], choices: Sequence[Choice]) -> None:
    names = {value for each in choices for value in each.values if isinstance(value, str)}
    for suspect in suspects:
        if suspect not in names:
            raise UnknownNameError(
                f"no rule of these calls is named {suspect}; there are {', '.join(sorted(names))}",
                hint=did_you_mean(suspect, names),
                pointer="/suspects",
            )


def _among(choices: Sequence[Choice], suspects: Sequence[str]) -> list[Choice]:
    """Return the options that have suspects. All but the first may be absent, and the first too if no other has any."""
    kept: list[Choice] = []
    for each in choices:
        if values := _of(each, suspects):
            kept.append(Choice(each.name, values if not kept else (None, *values)))
    return kept


def first_planned(call: ArrayCall) -> PlannedWork | None:
    """Return the work of the first named rule that does not refuse a call: all do about as much. None if all do."""
    for candidate in Candidates([call]).named():
        check_cancelled()
        try:
            return call.planned(options_for(candidate, call))
        except RequantError:
            continue
    return None


def options_for(candidate: Candidate, call: ArrayCall) -> dict[str, Any]:
    """Return the options of a candidate that are those of a call, read: its operation has them, and does not know
    them. Raise ParameterError for one without an option that the operation needs, as one of several calls may.
    """
    operation = call.operation
    options = {
        name: read_option(operation.option(name), value)
        for name, value in candidate
        if operation.has_option(name) and name not in call.options
    }
    for each in operation.options:
        if each.required and each.name not in options and each.name not in call.options:
            raise ParameterError(f"{operation.name} has no {each.name}")
    return options
