"""Names, and regular expressions after `re:`, as compressed-tensors reads `ignore` and `targets`.

Source: compressed-tensors 0.20.0, `match_name` (`utils/match.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from requant.checkpoint.selection.linear_pattern import LinearPatterns
from requant.errors import ParameterError, excerpt
from requant.errors.cancellation import check_cancelled

_REGEX = "re:"
_MAX_CHARACTERS = 1000
MAX_EXPRESSIONS = 1000
MAX_STATES = 20_000
"""Of the automata of untrusted expressions together, and their characters."""
_REPEATED = re.compile(r"[*+{]")
_QUANTIFIER = re.compile(r"[*+?{]")


class NamePatterns:
    """Names, or `re:` and a regular expression that is matched at the start of a name.

    Whatever the expressions, matching takes time in proportion to the name, if they are ones that `check_linear` takes.
    Raises ParameterError for a pattern that is not a regular expression.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._names: dict[str, int] = {}
        self._matchers: list[tuple[int, Callable[[str], object]]] = []
        linear: list[tuple[int, str]] = []
        for number, each in enumerate(patterns):
            if not each.startswith(_REGEX):
                self._names.setdefault(each, number)
                continue
            expression = each.removeprefix(_REGEX)
            compiled = _compiled(expression)
            if _is_quick(expression) or not _is_linear(expression):
                self._matchers.append((number, compiled.match))
            else:
                linear.append((number, expression))
        self._numbers = [number for number, _ in linear]
        self._linear = LinearPatterns([expression for _, expression in linear])

    def first(self, name: str) -> int | None:
        """Return the index of the first pattern that means this name, None where none does."""
        found = self._names.get(name)
        if self._numbers and (linear := self._linear.first(name)) is not None:
            found = _smaller(found, self._numbers[linear])
        for number, matches in self._matchers:
            if found is not None and found < number:
                break
            if matches(name):
                return number
        return found

    def match(self, name: str) -> bool:
        """Return whether one of the patterns means this name."""
        return self.first(name) is not None


def check_linear(patterns: Iterable[str]) -> None:
    """Raise ParameterError for a regular expression that `re` alone can match, which may take forever.

    For untrusted patterns: those of requests and of checkpoints. Also for more than MAX_EXPRESSIONS of them.
    """
    expressions = [each.removeprefix(_REGEX) for each in patterns if each.startswith(_REGEX)]
    if len(expressions) > MAX_EXPRESSIONS:
        raise ParameterError(f"there are {len(expressions)} regular expressions; at most {MAX_EXPRESSIONS} are allowed")
    if sum(map(len, expressions)) > MAX_STATES:
        raise ParameterError(f"the regular expressions have more than {MAX_STATES} characters together")
    states = 0
    for expression in expressions:
        if _is_quick(expression):
            continue
        if len(expression) > _MAX_CHARACTERS:
            raise ParameterError(f"a pattern has {len(expression)} characters; at most {_MAX_CHARACTERS} are allowed")
        check_cancelled()
        states += LinearPatterns([expression]).states
        if states > MAX_STATES:
            raise ParameterError(
                f"the regular expressions have more than {MAX_STATES} characters together, those in repeated groups "
                "counted as often as they are repeated"
            )


def _smaller(first: int | None, second: int) -> int:
    return second if first is None else min(first, second)


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        raise ParameterError(f"a pattern is not a regular expression: {excerpt(str(error))}") from None


def _is_linear(expression: str) -> bool:
    if len(expression) > _MAX_CHARACTERS:
        return False
    try:
        LinearPatterns([expression])
    except ParameterError:
        return False
    return True


def _is_quick(expression: str) -> bool:
    """Return whether `re` has next to nothing to go back to: no groups, one repetition, and one option.

    Groups hold alternatives, which multiply: `(.|[^!])` thirty times is tried in 2^30 ways.
    """
    return (
        len(expression) <= _MAX_CHARACTERS
        and "(" not in expression
        and len(_REPEATED.findall(expression)) <= 1
        and len(_QUANTIFIER.findall(expression)) <= 2
    )
