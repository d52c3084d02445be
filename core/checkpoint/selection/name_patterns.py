"""Names, and regular expressions after `re:`, as compressed-tensors reads `ignore` and `targets`.

Source: compressed-tensors 0.20.0, `match_name` (`utils/match.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from core.checkpoint.selection.linear_pattern import LinearPattern
from core.errors import ParameterError, excerpt

_REGEX = "re:"
_MOST_CHARACTERS = 1000
_REPEATED = re.compile(r"[*+{]")
_QUANTIFIER = re.compile(r"[*+?{]")


class NamePatterns:
    """Names, or `re:` and a regular expression that is matched at the start of a name.

    Whatever the expression, matching takes time in proportion to the name, if it is one that `check_linear` takes.
    Raises ParameterError for a pattern that is not a regular expression.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self.names = frozenset(each for each in patterns if not each.startswith(_REGEX))
        self.expressions = [_matcher(each.removeprefix(_REGEX)) for each in patterns if each.startswith(_REGEX)]

    def match(self, name: str) -> bool:
        """Return whether one of the patterns means this name."""
        return name in self.names or any(matches(name) for matches in self.expressions)


def check_linear(patterns: Iterable[str]) -> None:
    """Raise ParameterError for a regular expression that `re` alone can match, which may take forever.

    For untrusted patterns: those of requests and of checkpoints.
    """
    for each in patterns:
        expression = each.removeprefix(_REGEX)
        if each.startswith(_REGEX) and not _is_quick(expression):
            if len(expression) > _MOST_CHARACTERS:
                raise ParameterError(
                    f"a pattern has {len(expression)} characters; at most {_MOST_CHARACTERS} are allowed"
                )
            LinearPattern(expression)


def _matcher(expression: str) -> Callable[[str], object]:
    """Return a matcher for an expression: `re` if it is fast for it, or the only one that supports it."""
    try:
        compiled = re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        raise ParameterError(f"a pattern is not a regular expression: {excerpt(str(error))}") from None
    if _is_quick(expression) or len(expression) > _MOST_CHARACTERS:
        return compiled.match
    try:
        return LinearPattern(expression).match
    except ParameterError:
        return compiled.match


def _is_quick(expression: str) -> bool:
    """Return whether `re` has next to nothing to go back to: no groups, one repetition, and one option.

    Groups hold alternatives, which multiply: `(.|[^!])` thirty times is tried in 2^30 ways.
    """
    return (
        len(expression) <= _MOST_CHARACTERS
        and "(" not in expression
        and len(_REPEATED.findall(expression)) <= 1
        and len(_QUANTIFIER.findall(expression)) <= 2
    )
