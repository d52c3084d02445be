"""The steps of one element while they are worked out, and the numbers that its symbols stand for so far."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from core.explain.explanation import Step, StepKind
from core.explain.float_steps import Precision, Rounded, is_tie
from core.explain.number_text import exact_text, float_bits, float_text
from core.formats.elements import FloatElement

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_OPERATORS = ("+", "-", "*", "/")
INTEGER = "integer"
"""The precision of integers of any size."""


class Working:
    """`symbols`: the texts of those that are known at the start."""

    def __init__(self, **symbols: str) -> None:
        self.symbols = symbols
        self.steps: list[Step] = []

    def float(
        self,
        step: StepKind,
        symbol: str,
        formula: str,
        result: Rounded,
        element: FloatElement,
    ) -> float:
        """Add a step whose result is a float of `element`, and return that."""
        value = result.value
        self._add(
            Step(
                step,
                symbol,
                formula,
                self._inserted(formula),
                float_text(value, element),
                element.name,
                bits=float_bits(value, element),
                unrounded=None if result.exact is None else exact_text(result.exact),
                tie=result.exact is not None and math.isfinite(value) and _between(result.exact, value, element),
            )
        )
        return value

    def integer(
        self, step: StepKind, symbol: str, formula: str, value: int, precision: str = INTEGER,
        exact: Fraction | None = None,
    ) -> int:  # fmt: skip
        """Add a step whose result is an integer, and return that. `exact`: what was rounded to it."""
        unrounded = None if exact is None or exact == value else exact_text(exact)
        tie = exact is not None and is_tie(exact)
        self._add(
            Step(
                step, symbol, formula, self._inserted(formula), str(value), precision, unrounded=unrounded, tie=tie
            )
        )  # fmt: skip
        return value

    def text(self, step: StepKind, symbol: str, formula: str, value: str, precision: str) -> None:
        """Add a step whose result is no number that is computed with: a code, an infinity among integers."""
        self._add(Step(step, symbol, formula, self._inserted(formula), value, precision))

    def _add(self, step: Step) -> None:
        self.symbols[step.symbol] = step.value
        self.steps.append(step)

    def _inserted(self, formula: str) -> str:
        """Return the formula with the numbers in the place of the symbols."""

        def number(match: re.Match[str]) -> str:
            text = self.symbols.get(match[0])
            if text is None:
                return match[0]
            before = formula[: match.start()].rstrip()
            return f"({text})" if text.startswith("-") and before.endswith(_OPERATORS) else text

        return _SYMBOL.sub(number, formula)


def _between(exact: Fraction, value: float, element: FloatElement) -> bool:
    """Return whether an exact result lies exactly between `value`, the nearest number of a type, and its neighbour."""
    neighbour = Precision((element,)).round(2 * exact - Fraction(value))
    return neighbour.exact is None and math.isfinite(neighbour.value)
