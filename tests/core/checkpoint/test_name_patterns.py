"""Patterns match what `re.match` matches, and no pattern takes long."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.checkpoint import name_patterns
from requant.checkpoint.name_patterns import MAX_EXPRESSIONS, LinearPatterns, NamePatterns, check_linear
from requant.errors import ParameterError
from tests.support.cases import EXHAUSTIVE
from tests.support.cpu_time import within_cpu_seconds

LETTERS = ["a", "b", ".", r"\.", r"\d", r"\w", r"\s", r"\W", "0", "\n", "-", "é", ""]
ATOMS = st.sampled_from([*LETTERS, "[ab]", "[^a]", "[a-c.]", "[]a]", r"[\w.-]", "^", "$", r"\Z", r"\A"])
COUNTS = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{,2}", "{1,}", "*?", "+?", "??", "{0}"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda parts: f"({parts[0]}|{parts[1]})")
        | st.tuples(inner, COUNTS).map(lambda parts: f"(?:{parts[0]}){parts[1]}")
    ),
    max_leaves=6,
)
NAMES = st.text(st.sampled_from("aabc.01_\n-é"), max_size=7)


@given(EXPRESSIONS, st.lists(NAMES, min_size=1, max_size=8))
def test_linear_patterns_match_what_re_matches(expression: str, names: list[str]) -> None:
    pattern, compiled = LinearPatterns([expression]), re.compile(expression)
    assert [pattern.first(name) == 0 for name in names] == [compiled.match(name) is not None for name in names]


@pytest.mark.parametrize("expression", [r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", "[^a]", "[a-z]"])
def test_classes_are_those_of_re(expression: str) -> None:
    pattern, compiled = LinearPatterns([expression]), re.compile(expression)
    for code in (*range(0x800), *range(0x800, sys.maxunicode + 1, 1 if EXHAUSTIVE else 211)):
        assert (pattern.first(chr(code)) == 0) == (compiled.match(chr(code)) is not None)


PATTERNS = st.lists(st.builds("re:{}".format, EXPRESSIONS) | NAMES, max_size=6)


@given(PATTERNS, st.lists(NAMES, min_size=1, max_size=8))
def test_many_patterns_match_as_one_after_the_other(patterns: list[str], names: list[str]) -> None:
    together = NamePatterns(patterns)
    for name in names:
        each = [NamePatterns([pattern]).match(name) for pattern in patterns]
        assert together.first(name) == (each.index(True) if True in each else None), name


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_patterns, "_MAX_REMEMBERED", 50)
    expressions = [r"(a|b)+c\d", r"(.)+x(y|z)", r"(?:[^a]|b)*q"]
    patterns = name_patterns.LinearPatterns(expressions)
    for number in range(500):
        name = f"ab{chr(200 + number)}c{number}xyq"[number % 5 :]
        each = [re.match(expression, name) is not None for expression in expressions]
        assert patterns.first(name) == (each.index(True) if True in each else None)
        assert patterns._remembered < 200


def test_too_many_expressions_of_strangers_are_refused() -> None:
    check_linear([f"re:(a|b)+{number}" for number in range(MAX_EXPRESSIONS)])
    check_linear([f"name.{number}" for number in range(4096)])
    for patterns in (
        [f"re:{number}" for number in range(MAX_EXPRESSIONS + 1)],
        [f"re:{'a' * 900}{number}" for number in range(100)],
        [f"re:(?:(?:ab{{99}})?c){{9}}{number}" for number in range(100)],
    ):
        with pytest.raises(ParameterError, match=r"at most|more than"):
            check_linear(patterns)


CATASTROPHES = [
    "([a-z.]+)+!",
    "(a*)*b",
    "(a|a)*b",
    "(a|aa)+$x",
    ".*.*.*.*.*.*.*x",
    "(?:a?){30}a{30}!",
    "(?:.*a){12}x",
    r"(\w+\s?)*!",
    "(((((a+)+)+)+)+)+!",
    "(?:(?:a{0,30}){0,30})!",
    "(.|[^!])" * 29 + "!",
    "(?:|a)" * 60 + "!",
    "((.|[^!])(.|[^!])?)" * 20 + "!",
]


@pytest.mark.parametrize("expression", CATASTROPHES)
def test_no_pattern_takes_long(expression: str) -> None:
    def match() -> None:
        # What compiling takes counts each time.
        re.purge()
        patterns = NamePatterns([f"re:{expression}"])
        check_linear([f"re:{expression}"])
        assert not any(patterns.match(f"{'a' * 400}{number}") for number in range(50))

    assert within_cpu_seconds(match, 2)


@given(EXPRESSIONS | ATOMS.map(lambda atom: f"({atom}|[^!])"))
def test_no_repeated_expression_that_is_taken_takes_long(expression: str) -> None:
    text = f"re:{expression * 24}!"
    try:
        check_linear([text])
    except ParameterError:
        return
    matched: list[bool] = []
    assert within_cpu_seconds(lambda: matched.append(NamePatterns([text]).match("aab." * 10)), 1)
    assert not any(matched)


NOT_LINEAR = [
    "(a)\\1", "(a)\\1+b+", "(?=a)", "(?=a+)b+", "(?<!a)b", "(?i)a", "(?i)a+b+", "(a)?(?(1)b|c)",
    "(?P<x>a+)b+", r"\bx+y+", "a++b+c?", "a{1,2b+", "x{2}{2}y*",
    "(" * 60 + ")" * 60 + "a*b*", "(?:(?:a{1,99}){1,99}){1,99}", "a+b+" * 300,
]  # fmt: skip


@pytest.mark.parametrize("expression", NOT_LINEAR)
def test_what_is_not_taken_of_strangers(expression: str) -> None:
    with pytest.raises(ParameterError):
        check_linear([f"re:{expression}"])


def test_what_is_quick_is_matched_by_re() -> None:
    """All of Python's expressions are taken from a person; those that are quick, of strangers as well."""
    for expression in (r"(.*\.)?lm_head$", "model", r".*\.lm_head$", r"model\.layers\.[0-9]+\."):
        check_linear([f"re:{expression}", "a.name(+*"])
    assert NamePatterns(["re:(?i)(a+)+B$"]).match("aaab")
    assert not NamePatterns(["re:(?i)(a+)+B$"]).match("aaac")


def test_wrong_expressions_are_refused() -> None:
    for expression in ("(", "*", "[", "a{2,1}", "(?P<x"):
        with pytest.raises(ParameterError, match="not a regular expression"):
            NamePatterns([f"re:{expression}"])
