"""The steps of one element as they are worked out, and the current values of its symbols."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from requant.convert.explain.explanation import Step, StepKind
from requant.convert.explain.float_steps import Precision, Rounded, is_tie
from requant.convert.explain.number_text import exact_text, float_bits, float_text
from requant.formats.elements import FloatElement

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_OPERATORS = ("+", "-", "*", "/")
INTEGER = "integer"
"""The precision of integers of any size."""


class Working:
    """The steps so far. `names` renames symbols, for a conversion that follows another."""

    def __init__(self, **symbols: str) -> None:
        self.names: Mapping[str, str] = {}
        self.steps: list[Step] = []
        self._symbols = symbols

    def know(self, **symbols: str) -> None:
        """Set the texts of symbols."""
        self._symbols |= {self.names.get(symbol, symbol): text for symbol, text in symbols.items()}

    def known(self, symbol: str) -> str:
        """Return the text of a symbol."""
        return self._symbols[self.names.get(symbol, symbol)]

    def float(
        self,
        step: StepKind,
        symbol: str,
        formula: str,
        result: Rounded,
        element: FloatElement,
    ) -> float:
        """Add a step whose result is a float of `element`, and return that.

        The formula shows a first rounding to a wider type if it changes the result.
        """
        value = result.value
        if result.through is not None and f"{result.through}(" not in formula:
            inner = formula.removeprefix(f"{element.name}(").removesuffix(")") if "(" in formula else formula
            formula = f"{element.name}({result.through}({inner}))"
        tie = result.exact is not None and math.isfinite(value) and _between(result.exact, value, element)
        self._add(
            step,
            symbol,
            formula,
            float_text(value, element),
            element.name,
            bits=None if math.isnan(value) else float_bits(value, element),
            unrounded=None if result.exact is None else exact_text(result.exact),
            tie=tie,
        )
        return value

    def integer(
        self,
        step: StepKind,
        symbol: str,
        formula: str,
        value: int,
        precision: str = INTEGER,
        *,
        exact: Fraction | None = None,
    ) -> int:
        """Add a step whose result is an integer, and return that. `exact`: what was rounded to it."""
        unrounded = None if exact is None or exact == value else exact_text(exact)
        tie = exact is not None and is_tie(exact)
        self._add(step, symbol, formula, str(value), precision, unrounded=unrounded, tie=tie)
        return value

    def text(self, step: StepKind, symbol: str, formula: str, value: str, precision: str, **more: Any) -> None:
        """Add a step with a result in words: a code, or an infinity among integers. `more`: fields of Step."""
        self._add(step, symbol, formula, value, precision, **more)

    def _add(self, step: StepKind, symbol: str, formula: str, value: str, precision: str, **more: Any) -> None:
        symbol = self.names.get(symbol, symbol)
        formula = _SYMBOL.sub(lambda match: self.names.get(match[0], match[0]), formula)
        self.steps.append(Step(step, symbol, formula, self._inserted(formula), value, precision, **more))
        self._symbols[symbol] = value

    def _inserted(self, formula: str) -> str:
        """Return the formula with numbers for its symbols."""

        def number(match: re.Match[str]) -> str:
            text = self._symbols.get(match[0])
            if text is None:
                return match[0]
            before = formula[: match.start()].rstrip()
            return f"({text})" if text.startswith("-") and before.endswith(_OPERATORS) else text

        return _SYMBOL.sub(number, formula)


def _between(exact: Fraction, value: float, element: FloatElement) -> bool:
    """Return whether an exact result lies halfway between `value`, the nearest number of a type, and its neighbour."""
    of_type = Precision((element,))
    if of_type.round(exact).exact is None:
        # A number of the type that was flushed, or rounded to a narrower one.
        return False
    neighbour = of_type.round(2 * exact - Fraction(value))
    return neighbour.exact is None and math.isfinite(neighbour.value)
