"""The claim that two rules of integers are equal, as SMT-LIB 2 of bit vectors, for solvers to confirm.

A solver knows nothing of staircases: it looks for an input with two outcomes. `unsat` says that there is none, and that
both rules are undefined for the same inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from requant.equality.rules import Rule
from requant.equality.steps import Step, Steps
from requant.errors import UnsupportedError


@dataclass(slots=True)
class _Formula:
    """The definitions of a formula, one for each step: numbers are x / 2^places.

    `bound` is not below any magnitude that occurs, and `bits` those that the largest so far needs with its sign.
    """

    name: str
    bound: int
    places: int = 0
    bits: int = 0
    lines: list[tuple[str, Step]] = field(default_factory=list)
    defined: list[str] = field(default_factory=list)

    @property
    def symbol(self) -> str:
        """The number after the last step."""
        return f"{self.name}_{len(self.lines)}" if self.lines else "input"

    def extend(self, expression: str, step: Step, bound: int) -> None:
        """Add a definition."""
        self.lines.append((expression, step))
        self.bound = bound
        self.bits = max(self.bits, bound.bit_length() + 2)


def _constant(value: int) -> str:
    """A number, whose width is known when all is written."""
    return f"{{{value}}}"


def _shift(expression: str, places: int) -> str:
    return f"(bvashr {expression} {_constant(places)})"


def _rounded(x: str, way: str, places: int) -> str:
    """x / 2^places, rounded to an integer: floors of sums."""
    half = 1 << (places - 1)
    rest = (1 << places) - 1

    def floor_of(number: str, added: int) -> str:
        return _shift(f"(bvadd {number} {_constant(added)})", places)

    def by_sign(added: int) -> str:
        below = f"(bvneg {floor_of(f'(bvneg {x})', added)})"
        return f"(ite (bvslt {x} {_constant(0)}) {below} {floor_of(x, added)})"

    match way:
        case "up":
            return floor_of(x, half)
        case "down":
            return floor_of(x, half - 1)
        case "floor":
            return _shift(x, places)
        case "ceil":
            return floor_of(x, rest)
        case "away":
            return by_sign(half)
        case "zero":
            return by_sign(0)
        case "odd":
            # What is lost makes one more of a number whose last bit is 0.
            last = f"(bvand {_shift(x, places)} {_constant(1)})"
            return _shift(f"(bvadd {x} (bvand {_constant(rest)} (bvsub {last} {_constant(1)})))", places)
    odd = f"(bvand {_shift(x, places)} {_constant(1)})"
    return _shift(f"(bvadd {x} (bvadd {odd} {_constant(half - 1)}))", places)


def _follow(formula: _Formula, step: Step) -> None:
    """Add a step."""
    name, *numbers = step
    x, bound = formula.symbol, formula.bound
    match name:
        case "add" if numbers[1] == 1:
            shifted = numbers[0] << formula.places
            formula.extend(f"(bvadd {x} {_constant(shifted)})", step, bound + abs(shifted))
        case "multiply" if numbers[1] & (numbers[1] - 1) == 0:
            formula.places += numbers[1].bit_length() - 1
            formula.extend(f"(bvmul {x} {_constant(numbers[0])})", step, bound * abs(numbers[0]))
        case "nudge":
            shifted = numbers[0] << formula.places
            added, taken = (f"({op} {x} {_constant(shifted)})" for op in ("bvadd", "bvsub"))
            formula.extend(f"(ite (bvslt {x} {_constant(0)}) {taken} {added})", step, bound + shifted)
        case "integer":
            if formula.places:
                # The half that is added counts among the bits.
                formula.bits = max(formula.bits, (bound + (1 << formula.places)).bit_length() + 2)
                rounded = _rounded(x, numbers[0], formula.places)
                formula.extend(rounded, step, (bound >> formula.places) + 1)
                formula.places = 0
        case "clamp" if not formula.places:
            low, high = (_constant(each) for each in numbers)
            formula.extend(
                f"(ite (bvslt {x} {low}) {low} (ite (bvslt {high} {x}) {high} {x}))",
                step,
                max(abs(numbers[0]), abs(numbers[1])),
            )
        case "wrap" if not formula.places:
            bits = numbers[0]
            formula.bits = max(formula.bits, bits + 1)
            extended = f"((_ sign_extend {{width - {bits}}}) ((_ extract {bits - 1} 0) {x}))"
            formula.extend(extended, step, 1 << (bits - 1))
        case "within" if numbers[2] is None and not formula.places:
            formula.bits = max(formula.bits, *(abs(each).bit_length() + 2 for each in numbers[:2]))
            low, high = (_constant(each) for each in numbers[:2])
            formula.defined.append(f"(and (bvsle {low} {x}) (bvsle {x} {high}))")
        case _:
            raise UnsupportedError(
                f"SMT-LIB is written for integer arithmetic only, and the step {name} {numbers} is none"
            )


def _integers(rule: Rule) -> Steps:
    """Return the formula of a rule of integers."""
    steps = rule.parts[0].steps
    if rule.source is not None or steps is None:
        raise UnsupportedError(f"SMT-LIB is written for rules from integers to integers; this one is: {rule.text}")
    return steps


def smt2(first: Rule, second: Rule, status: str = "unknown") -> str:
    """Return the claim that two rules give the same for every input, to be refuted: a script of SMT-LIB 2.6, QF_BV.

    `status` is what is known: "unsat" where they are equal, "sat" where they are not. Raise UnsupportedError for rules
    that compute with floats, and for rules of different inputs.
    """
    if first.input_name != second.input_name:
        raise UnsupportedError(f"the inputs are {first.input_name} of one rule, and {second.input_name} of the other")
    part = first.parts[0]
    formulas = []
    for name, rule in (("first", first), ("second", second)):
        formula = _Formula(name, max(abs(part.lowest), abs(part.highest)))
        for step in _integers(rule):
            _follow(formula, step)
        formulas.append(formula)
    of_input = int(first.input_name[1:])
    width = max(of_input + 1, *(each.bits for each in formulas))
    extend = "sign" if part.lowest < 0 else "zero"
    lines = [
        "; An input for which these two rules do not give the same:",
        f"; first:  {first.text}",
        f"; second: {second.text}",
        f"(set-info :status {status})",
        "(set-logic QF_BV)",
        f"(declare-const x (_ BitVec {of_input}))",
        f"(define-fun input () (_ BitVec {width}) ((_ {extend}_extend {width - of_input}) x))",
    ]
    for formula in formulas:
        for index, (expression, step) in enumerate(formula.lines, 1):
            lines.append(f"; {' '.join(map(str, step))}")
            body = _of_width(expression, width)
            lines.append(f"(define-fun {formula.name}_{index} () (_ BitVec {width}) {body})")
        conditions = [_of_width(each, width) for each in formula.defined]
        condition = f"(and {' '.join(conditions)})" if conditions else "true"
        lines.append(f"(define-fun {formula.name}_is_defined () Bool {condition})")
    same = f"(= {formulas[0].symbol} {formulas[1].symbol})"
    lines += [
        f"(assert (or (distinct first_is_defined second_is_defined) (and first_is_defined (not {same}))))",
        "(check-sat)",
        "(get-model)" if status == "sat" else "",
    ]
    return "\n".join(lines).rstrip() + "\n"


def _of_width(expression: str, width: int) -> str:
    """Write the numbers in an expression as bit vectors."""
    written, rest = [], expression
    while "{" in rest:
        before, _, rest = rest.partition("{")
        inside, _, rest = rest.partition("}")
        if inside.startswith("width - "):
            text = str(width - int(inside.removeprefix("width - ")))
        else:
            text = f"(_ bv{int(inside) % (1 << width)} {width})"
        written += [before, text]
    return "".join([*written, rest])
