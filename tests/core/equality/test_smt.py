"""SMT-LIB: the script means what the rules compute. A solver reads it in tests/interop; here it is evaluated."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from requant.equality.decision import compare
from requant.equality.rules import Rule
from requant.equality.smt import smt2
from requant.errors import UnsupportedError
from requant.schemes import SCHEMES, FixedPoint, Multiplier
from tests.core.equality.pairs import multipliers_of, quantized, requantized

Term = Any
FIXED = [name for name, scheme in SCHEMES.items() if isinstance(scheme.stage, FixedPoint)]


def read(text: str) -> list[Term]:
    """The terms of a script."""
    stack: list[list[Term]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", re.sub(r";[^\n]*", "", text)):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    return stack[0]


class Script:
    """A script of QF_BV with definitions and one claim, evaluated in Python's integers."""

    def __init__(self, text: str) -> None:
        self.terms = read(text)
        self.definitions = {term[1]: term for term in self.terms if term[0] == "define-fun"}
        ((_, self.claim),) = (term for term in self.terms if term[0] == "assert")
        ((_, _, (_, _, width)),) = (term for term in self.terms if term[0] == "declare-const")
        self.input_width = int(width)
        self.width = int(self.definitions["input"][3][2])

    def value(self, term: Term, x: int, known: dict[str, Any]) -> Any:
        """The value of a term: a truth, or a number without a sign."""
        size = 1 << self.width
        if isinstance(term, str):
            if term == "true":
                return True
            if term == "x":
                return x % (1 << self.input_width)
            if term not in known:
                known[term] = self.value(self.definitions[term][4], x, known)
            return known[term]
        head, *rest = term
        if head == "_":
            assert int(rest[1]) == self.width
            return int(rest[0].removeprefix("bv"))
        if isinstance(head, list):
            operand = self.value(rest[0], x, known)
            match head[1]:
                case "extract":
                    return operand & ((2 << int(head[2])) - 1)
                case "zero_extend":
                    return operand
                case "sign_extend":
                    bits = self.width - int(head[2])
                    return (operand - ((operand >> (bits - 1)) << bits)) % size
        if head == "ite":
            return self.value(rest[1] if self.value(rest[0], x, known) else rest[2], x, known)
        values = [self.value(each, x, known) for each in rest]
        return OPERATIONS[head](self, *values)

    def signed(self, number: int) -> int:
        return number - (number >> (self.width - 1) << self.width)

    def differs(self, x: int) -> bool:
        return bool(self.value(self.claim, x, {}))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "bvadd": lambda s, a, b: (a + b) % (1 << s.width),
    "bvsub": lambda s, a, b: (a - b) % (1 << s.width),
    "bvmul": lambda s, a, b: (a * b) % (1 << s.width),
    "bvneg": lambda s, a: -a % (1 << s.width),
    "bvand": lambda s, a, b: a & b,
    "bvashr": lambda s, a, b: (s.signed(a) >> b) % (1 << s.width),
    "bvslt": lambda s, a, b: s.signed(a) < s.signed(b),
    "bvsle": lambda s, a, b: s.signed(a) <= s.signed(b),
    "and": lambda s, *each: all(each),
    "or": lambda s, *each: any(each),
    "not": lambda s, a: not a,
    "=": lambda s, a, b: a == b,
    "distinct": lambda s, a, b: a != b,
}


def inputs_of(first: Rule, second: Rule) -> list[int]:
    """Inputs that differ, ends of intervals, and random ones."""
    decided = compare(first, second)
    common = decided.parts[0].common
    rows = [] if common is None else [*common.starts.tolist(), *common.ends.tolist()]
    drawn = random.Random(5)
    return [
        *(each.code for each in decided.sample),
        *drawn.sample(rows, min(len(rows), 30)),
        *(drawn.randint(first.parts[0].lowest, first.parts[0].highest) for _ in range(20)),
    ]


@pytest.mark.sample(4)
@pytest.mark.parametrize("scheme", FIXED)
def test_scripts_say_for_which_inputs_rules_differ(scheme: str) -> None:
    others = ["litert", "cmsis_nn", "tosa_double_round", "xnnpack_rndna"]
    for index, (first, _) in enumerate(multipliers_of(scheme, 6, 6)):
        ((second, _),) = multipliers_of(others[index % 4], index, 1)
        script = Script(smt2(first, second))
        for x in inputs_of(first, second):
            outcomes = [rule.outcome(rule.parts[0], x) for rule in (first, second)]
            assert script.differs(x) == (outcomes[0] != outcomes[1])


@pytest.mark.parametrize(
    ("one", "other", "multiplier"),
    [
        ("litert", "litert_single_rounding", Multiplier(1 << 30, -2)),
        ("arm_vector", "litert", Multiplier(3 << 29, -3)),
        ("xnnpack_rndnu", "xnnpack_rndna", Multiplier(3 << 22, 27)),
        ("tosa", "tosa_double_round", Multiplier(1 << 30, 34)),
        ("litert", "cmsis_nn", Multiplier(1 << 30, 24)),
    ],
)
def test_scripts_say_it_of_every_input_of_ten_bits(one: str, other: str, multiplier: Multiplier) -> None:
    first, second = (requantized(each, multiplier, "i10", "i7") for each in (one, other))
    script = Script(smt2(first, second))
    differing = [x for x in range(-512, 512) if script.differs(x)]
    (part,) = first.parts
    assert differing == [x for x in range(-512, 512) if first.outcome(part, x) != second.outcome(second.parts[0], x)]
    assert differing


def test_a_script_states_rules_steps_and_what_is_known() -> None:
    rules = [requantized(each, Multiplier(1234567891, -7)) for each in ("litert", "litert_single_rounding")]
    text = smt2(rules[0], rules[1], status="sat")
    assert f"; first:  {rules[0].text}\n" in text
    assert "; multiply 1234567891 2147483648\n" in text
    assert "(set-info :status sat)\n(set-logic QF_BV)\n" in text
    assert text.endswith("(check-sat)\n(get-model)\n")
    assert smt2(rules[0], rules[1], status="unsat").endswith("(check-sat)\n")


def test_floats_are_refused() -> None:
    fixed, floating = (requantized(each, Multiplier(3 << 22, 30)) for each in ("tosa", "onnxruntime"))
    with pytest.raises(UnsupportedError, match="integer arithmetic only"):
        smt2(fixed, floating)
    cast = quantized("onnx", "f32", "f16")
    with pytest.raises(UnsupportedError, match="from integers to integers"):
        smt2(cast, cast)
