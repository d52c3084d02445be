"""Names, and regular expressions after `re:`, as compressed-tensors reads `ignore` and `targets`.

`re` backtracks: whether `([a-z.]+)+!` matches a name of 40 letters is not known within a lifetime. Here an expression
becomes a nondeterministic automaton that is followed in all its states at once; sets of states that were met are
remembered (Thompson, Regular expression search algorithm, 1968; RE2). Several expressions are followed at once, too:
a name is read once. Whether a name matches is what `re.match` says; there are no groups to return.

Taken: characters and their escapes, `.`, `\\d`, `\\w`, `\\s` and their opposites, sets, groups without names, `|`, `*`,
`+`, `?`, `{m,n}`, each also as lazy, `^`, `$`, `\\A`, `\\Z`. Not taken: references, look-around, flags, `\\b`.

Why not google-re2 1.1: it reads some of this otherwise than `re`, on which loaders decide what is quantized: its `\\d`,
`\\w` and `\\b` know ASCII alone, its `$` does not match before a last newline, and `a{,3}` is those five characters.

Source: compressed-tensors 0.20.0, `match_name` (`utils/match.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from requant.errors import ParameterError, excerpt
from requant.errors.cancellation import check_cancelled

MAX_STATES = 2000
MAX_NESTING = 50
_MAX_REMEMBERED = 500_000
_NONE = 1 << 30

Predicate = Callable[[str], bool]
_DIGIT: Predicate = str.isdecimal


def _word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _not(predicate: Predicate) -> Predicate:
    return lambda character: not predicate(character)


def _any_of(predicates: list[Predicate]) -> Predicate:
    return lambda character: any(predicate(character) for predicate in predicates)


def _between(first: str, last: str) -> Predicate:
    return lambda character: first <= character <= last


_CLASSES: dict[str, Predicate] = {
    "d": _DIGIT, "D": _not(_DIGIT), "w": _word, "W": _not(_word), "s": str.isspace, "S": _not(str.isspace),
}  # fmt: skip
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}

START, END, LAST_END = "^", "$", "Z"


@dataclass(slots=True)
class _State:
    """`predicate`: of the character that leads to `then`. Without: `then` follows at once, where `where` holds."""

    predicate: Predicate | None = None
    where: str | None = None
    then: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Node:
    """States that were met together. `accepted`: the first expression that has matched, `_NONE` if none has; `at_end`:
    if a name ends here, None where that was not asked.
    """

    states: frozenset[int]
    accepted: int
    at_end: int | None = None
    then: dict[str, _Node] = field(default_factory=dict)


class LinearPatterns:
    """Compiled expressions, followed together. Raises ParameterError for one that is not taken.

    `states`: their number, of which the time for a character that was not met before is a multiple.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._states: list[_State] = []
        # The first state of each expression is the one in which it has matched.
        self._accepting: list[int] = []
        firsts = []
        for text in texts:
            self._accepting.append(len(self._states))
            firsts.append(_Parser(text, self._states).first)
        self.states = len(self._states)
        self._number_of = {state: number for number, state in enumerate(self._accepting)}
        self._nodes: dict[tuple[frozenset[int], int], _Node] = {}
        self._remembered = 0
        self._at_start = self._closure(firsts, {START})

    def first(self, name: str) -> int | None:
        """Return the number of the first expression that means something with which the name begins; None for none."""
        node = self._node(self._at_start)
        accepted = node.accepted
        for at, character in enumerate(name):
            if character == "\n" and at == len(name) - 1:
                node = self._node(self._closure(node.states, {END, START} if at == 0 else {END}))
                accepted = min(accepted, node.accepted)
            node = node.then.get(character) or self._after(node, character)
            accepted = min(accepted, node.accepted)
            if not node.states:
                return None if accepted == _NONE else accepted
        if not name:
            accepted = min(accepted, self._node(self._closure(node.states, {END, LAST_END, START})).accepted)
        else:
            if node.at_end is None:
                node.at_end = self._node(self._closure(node.states, {END, LAST_END})).accepted
            accepted = min(accepted, node.at_end)
        return None if accepted == _NONE else accepted

    def _after(self, node: _Node, character: str) -> _Node:
        check_cancelled()
        reached: list[int] = []
        for number in node.states:
            state = self._states[number]
            if state.predicate is not None and state.predicate(character):
                reached += state.then
        after = self._node(self._closure(reached, set()))
        self._remembered += 1
        node.then[character] = after
        return after

    def _node(self, states: frozenset[int]) -> _Node:
        """Return the node of some states, without those of expressions behind one that has matched."""
        accepted = min((self._number_of[state] for state in states & self._number_of.keys()), default=_NONE)
        if accepted != _NONE:
            states = frozenset(state for state in states if state < self._accepting[accepted])
        node = self._nodes.get((states, accepted))
        if node is None:
            if self._remembered > _MAX_REMEMBERED:
                for each in self._nodes.values():
                    each.then.clear()
                self._nodes.clear()
                self._remembered = 0
            node = self._nodes[states, accepted] = _Node(states, accepted)
            self._remembered += 1 + len(states)
        return node

    def _closure(self, states: Iterable[int], holding: set[str]) -> frozenset[int]:
        """Return what is reached without a character, where the conditions `holding` hold."""
        reached = set(states)
        left = list(reached)
        while left:
            state = self._states[left.pop()]
            if state.predicate is None and (state.where is None or state.where in holding):
                new = [number for number in state.then if number not in reached]
                reached.update(new)
                left += new
        return frozenset(reached)


Part = tuple[int, list[int]]
"""The first state of a part, and the states from which what comes next follows."""


class _Parser:
    """Reads an expression, and adds its states to those of others: first the one in which it has matched."""

    def __init__(self, text: str, states: list[_State]) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.states, accepting = states, len(states)
        self.largest = accepting + MAX_STATES
        states.append(_State())
        self.first, ends = self._alternatives()
        if self.at != len(text):
            self._fail("an unbalanced ')'")
        self._join(ends, accepting)

    def _fail(self, what: str) -> NoReturn:
        raise ParameterError(f"'{excerpt(self.text)}', character {self.at + 1}: {what} is not supported in a pattern")

    def _add(self, state: _State) -> int:
        if len(self.states) == self.largest:
            self._fail("an expression of this size")
        self.states.append(state)
        return len(self.states) - 1

    def _join(self, ends: list[int], then: int) -> None:
        for end in ends:
            self.states[end].then.append(then)

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self, text: str) -> bool:
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _alternatives(self) -> Part:
        self.depth += 1
        if self.depth > MAX_NESTING:
            self._fail("a group nested this deep")
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        self.depth -= 1
        if len(parts) == 1:
            return parts[0]
        fork = self._add(_State(then=[first for first, _ in parts]))
        return fork, [end for _, ends in parts for end in ends]

    def _sequence(self) -> Part:
        first = self._add(_State())
        ends = [first]
        while self._next() not in ("", "|", ")"):
            start, ends_of_item = self._repeated()
            self._join(ends, start)
            ends = ends_of_item
        return first, ends

    def _repeated(self) -> Part:
        begin = self.at
        part = self._item()
        counts = self._counts()
        if counts is None:
            return part
        least, most = counts
        end = self.at
        if self._counts() is not None or self._next() == "+":
            self._fail("a quantifier after a quantifier")
        # Copies are read again: each has states of its own.
        first = self._add(_State())
        ends = [first]
        exits: list[int] = []
        for number in range(least if most is None else most):
            if number >= least:
                exits += ends
            self.at = begin
            start, after = self._item() if number else part
            self._join(ends, start)
            ends = after
        if most is None:
            self.at = begin
            start, after = self._item() if least else part
            loop = self._add(_State(then=[start]))
            self._join(ends, loop)
            self._join(after, loop)
            ends = [loop]
        self.at = end
        return first, [*ends, *exits]

    def _counts(self) -> tuple[int, int | None] | None:
        """Read a quantifier; the lazy one means the same here."""
        counts: tuple[int, int | None] | None = None
        if self._take("*"):
            counts = 0, None
        elif self._take("+"):
            counts = 1, None
        elif self._take("?"):
            counts = 0, 1
        elif self._next() == "{":
            counts = self._braces()
        if counts is not None:
            self._take("?")
        return counts

    def _braces(self) -> tuple[int, int | None]:
        closing = self.text.find("}", self.at)
        least, comma, most = self.text[self.at + 1 : max(closing, self.at)].partition(",")
        numbers = [number for number in (least, most) if number]
        if closing < 0 or not numbers or not all(n.isascii() and n.isdigit() and len(n) < 5 for n in numbers):
            self._fail("'{' without counts")
        low = int(least) if least else 0
        high = int(most) if most else None if comma else low
        if high is not None and high < low:
            self._fail("a count whose minimum exceeds its maximum")
        self.at = closing + 1
        return low, high

    def _item(self) -> Part:
        character = self._next()
        if self._take("("):
            if self._take("?") and not self._take(":"):
                self._fail("what begins with '(?'")
            part = self._alternatives()
            if not self._take(")"):
                self._fail("an unclosed group")
            return part
        if character in ("^", "$"):
            self.at += 1
            return self._single(_State(where=character))
        if character == "\\" and self.text[self.at + 1 : self.at + 2] in ("A", "Z"):
            self.at += 2
            return self._single(_State(where=START if self.text[self.at - 1] == "A" else LAST_END))
        if character in ("*", "+", "?", "{"):
            self._fail("a quantifier with nothing to repeat")
        return self._single(_State(predicate=self._character()))

    def _single(self, state: _State) -> Part:
        number = self._add(state)
        return number, [number]

    def _character(self) -> Predicate:
        if self._take("["):
            return self._set()
        if self._take("."):
            return "\n".__ne__
        kind = self._escaped()
        if callable(kind):
            return kind
        return kind.__eq__

    def _escaped(self) -> Predicate | str:
        """Read a character, or the class that an escape means."""
        character = self._next()
        self.at += 1
        if character != "\\":
            return character
        escaped = self._next()
        if escaped in _CLASSES:
            self.at += 1
            return _CLASSES[escaped]
        if escaped in _CONTROLS:
            self.at += 1
            return _CONTROLS[escaped]
        if not escaped or (escaped.isascii() and escaped.isalnum()):
            self._fail("this escape")
        self.at += 1
        return escaped

    def _set(self) -> Predicate:
        opposite = self._take("^")
        predicates: list[Predicate] = []
        begin = self.at
        while self._next() != "]" or self.at == begin:
            if not self._next():
                self._fail("an unclosed set")
            low = self._escaped()
            if self._next() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self._escaped()
                if not isinstance(low, str) or not isinstance(high, str) or high < low:
                    self._fail("such a range")
                predicates.append(_between(low, high))
            else:
                predicates.append(low.__eq__ if isinstance(low, str) else low)
        self.at += 1
        predicate = _any_of(predicates)
        return _not(predicate) if opposite else predicate


_REGEX = "re:"
_MAX_CHARACTERS = 1000
MAX_EXPRESSIONS = 1000
MAX_STATES_TOGETHER = 20_000
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
        first = self._names.get(name)
        if self._numbers and (linear := self._linear.first(name)) is not None:
            first = _smaller(first, self._numbers[linear])
        for number, matches in self._matchers:
            if first is not None and first < number:
                break
            if matches(name):
                return number
        return first

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
    if sum(map(len, expressions)) > MAX_STATES_TOGETHER:
        raise ParameterError(f"the regular expressions have more than {MAX_STATES_TOGETHER} characters together")
    states = 0
    for expression in expressions:
        if _is_quick(expression):
            continue
        if len(expression) > _MAX_CHARACTERS:
            raise ParameterError(f"a pattern has {len(expression)} characters; at most {_MAX_CHARACTERS} are allowed")
        check_cancelled()
        states += LinearPatterns([expression]).states
        if states > MAX_STATES_TOGETHER:
            raise ParameterError(
                f"the regular expressions have more than {MAX_STATES_TOGETHER} characters together, those in repeated "
                "groups counted as often as they are repeated"
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


_WILDCARD = re.compile(r"[*?\[]")
_OF_SHELL = re.compile(r"\*|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)


class ShellPatterns:
    """Names with the wildcards of a shell, `*`, `?`, `[a-z]` and `[!a-z]`, which match whole names (`fnmatch`).

    They may be untrusted: matching takes time in proportion to the name. Raises ParameterError for more than
    MAX_EXPRESSIONS wildcards that are not one `*` at the end.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        single = [each for each in patterns if _WILDCARD.search(each) is None]
        begins = [each[:-1] for each in patterns if each.endswith("*") and _WILDCARD.search(each[:-1]) is None]
        others = [each for each in patterns if _WILDCARD.search(each.removesuffix("*")) is not None]
        expressions = [shell_expression(each) for each in others]
        check_linear(expressions)
        self._names = frozenset(single)
        self._begins = frozenset(begins)
        self._lengths = sorted({len(each) for each in begins})
        self._others = NamePatterns(expressions)

    def match(self, name: str) -> bool:
        """Return whether one of the patterns means this name."""
        return (
            name in self._names
            or any(name[:length] in self._begins for length in self._lengths)
            or self._others.match(name)
        )


def shell_expression(pattern: str) -> str:
    """Return a name as it is, and one with wildcards of a shell as `re:` and an expression."""
    if _WILDCARD.search(pattern) is None:
        return pattern

    def translated(part: str) -> str:
        if part == "*":
            return ".*"
        if part == "?":
            return "."
        if len(part) == 1:
            return re.escape(part)
        inside = part[1:-1].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
        return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"

    return f"{_REGEX}{''.join(map(translated, _OF_SHELL.findall(pattern)))}\\Z"
