"""The steps of one element as they are worked out, the texts of their numbers, and the scales they start from."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context, Decimal, Inexact
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from requant.convert.explain.explanation import Step, StepKind
from requant.convert.explain.float_steps import F32, F64, Precision, Rounded, is_tie, precision
from requant.formats.elements import FloatElement
from requant.plan.float_arrays import COMPUTE_DTYPES
from requant.plan.operands import QuantizedOperand
from requant.profiles import OperationRule
from requant.profiles.rule import Steps

# Exact results of up to so many digits are written in full.
_MAX_DIGITS = 30
_DIGITS_OF_LONGER = 20
_SMALLEST_WRITTEN_OUT, _LARGEST_WRITTEN_OUT = 1e-4, 1e16
# Numbers of bf16 and small floats are written as those of f32, which has all of them.
_SCALAR: dict[str, Callable[[float], np.floating[Any]]] = {"f16": np.float16, "f64": np.float64}
_BITS = {"f16": ("<f2", "<u2"), "bf16": (ml_dtypes.bfloat16, "<u2"), "f32": ("<f4", "<u4"), "f64": ("<f8", "<u8")}


def float_text(value: float, element: FloatElement) -> str:
    """Return a short decimal number that reads back as `value`, a number of `element`: as f32 for bf16 and narrower."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return _digits(_SCALAR.get(element.name, np.float32)(value))


def _digits(value: np.floating[Any]) -> str:
    """Return the fewest digits that read back as a finite number of numpy, or all digits of a whole number."""
    if value == np.trunc(value) and 0 < abs(float(value)) < _LARGEST_WRITTEN_OUT:
        return f"{int(value)}.0"
    if value == 0 or _SMALLEST_WRITTEN_OUT <= abs(float(value)) < _LARGEST_WRITTEN_OUT:
        return np.format_float_positional(value, unique=True, trim="0")
    return np.format_float_scientific(value, unique=True, trim="-")


def float_bits(value: float, element: FloatElement) -> str:
    """Return the bits of `value`, a number of `element`, in hexadecimal."""
    dtype, unsigned = _BITS[element.name]
    with np.errstate(invalid="ignore"):
        bits = int(np.array(value, np.float64).astype(dtype).view(unsigned))
    return f"0x{bits:0{element.width // 4}X}"


def exact_text(number: Fraction) -> str:
    """Return a number in decimal: all digits where there are at most 30, else the first 20 and an ellipsis."""
    context = Context(prec=_MAX_DIGITS, rounding=ROUND_DOWN)
    digits = context.divide(Decimal(number.numerator), Decimal(number.denominator))
    if not context.flags[Inexact]:
        return _lower(digits.normalize(context))
    mantissa, e, exponent = _lower(Context(prec=_DIGITS_OF_LONGER, rounding=ROUND_DOWN).plus(digits)).partition("e")
    return f"{mantissa}…{e}{exponent}"


def _lower(number: Decimal) -> str:
    text = str(number).lower()
    mantissa, e, exponent = text.partition("e")
    # Decimal writes 1000 as 1e+3; short powers of ten are written out.
    if e and 0 <= int(exponent) < _DIGITS_OF_LONGER:
        return str(int(number))
    return f"{mantissa}{e}{exponent}"


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


def compute_type_of(expressed: FloatElement) -> FloatElement:
    """Return the narrowest type that an expressed type is computed in: f32, or f64."""
    return F64 if COMPUTE_DTYPES[expressed.name] == "<f8" else F32


def step_precision(rule: OperationRule, expressed: FloatElement) -> Precision:
    """Return what the rule rounds each step to."""
    return precision(expressed if rule.steps is Steps.EXPRESSED else compute_type_of(expressed))


@dataclass(frozen=True, slots=True)
class Scales:
    """The scales of an operand under a rule. `left_out`: all are so close to 1 that the rule takes 1."""

    rule: OperationRule
    operand: QuantizedOperand
    left_out: bool

    @classmethod
    def of(cls, rule: OperationRule, operand: QuantizedOperand) -> Scales:
        """Return those of an operand."""
        tolerance = rule.unit_tolerance
        if tolerance is None:
            return cls(rule, operand, left_out=False)
        # The differences are exact in f64.
        most = Precision((F32,)).of(tolerance).value
        nearest = (Precision((F32,)).of(scale).value for scale in operand.scales)
        return cls(rule, operand, left_out=all(abs(scale - 1.0) <= most for scale in nearest))

    @property
    def element(self) -> FloatElement:
        """The type that scales are rounded to."""
        return self.operand.expressed if self.rule.scales is Steps.EXPRESSED else F32

    def known(self, working: Working, parameter: int) -> float:
        """Return the scale of the type, which formulas call `scale`."""
        scale = self.operand.scales[parameter]
        working.know(scale=float_text(scale, F64))
        return scale

    def show(self, working: Working, parameter: int, symbol: str = "s") -> float:
        """Add the step from the type's scale to the one that is computed with, and return the latter."""
        scale = self.known(working, parameter)
        if self.left_out:
            return working.float(StepKind.SCALE, symbol, "1", Precision((F32,)).of(1.0), F32)
        result = Precision((self.element,)).of(scale)
        return working.float(StepKind.SCALE, symbol, f"{self.element.name}(scale)", result, self.element)
