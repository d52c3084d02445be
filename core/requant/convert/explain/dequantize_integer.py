"""Steps from a stored integer to a float, by a profile's rule for y = (q - z) * s."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from requant.convert.explain.explanation import StepKind
from requant.convert.explain.float_steps import F16, F32, F64, Precision, Rounded, wrap_int32
from requant.convert.explain.scales import Scales, lanes_of, step_precision
from requant.convert.explain.working import INTEGER, Working
from requant.formats.elements import FloatElement
from requant.formats.rules import Difference
from requant.plan.operands import QuantizedOperand
from requant.profiles import OperationRule

_OF_FLOATS = (Difference.FLOATS, Difference.FLOATS_OF_F32)
_F64_OF_FLOATS = (Difference.FLOATS, Difference.DOUBLE)


@dataclass(frozen=True, slots=True)
class IntegerDequantization:
    """How the stored integers of a tensor become floats."""

    rule: OperationRule
    scales: Scales

    @property
    def operand(self) -> QuantizedOperand:
        """The type of the integers."""
        return self.scales.operand

    def explain(self, working: Working, q: int, parameter: int) -> float:
        """Add the steps of an element, and return its real number."""
        operand, rule = self.operand, self.rule
        z = operand.zero_points[parameter]
        working.know(q=str(q), z=str(z))
        s = self.scales.show(working, parameter)
        expressed = operand.expressed
        if lanes_of(expressed) is F64:
            if rule.difference in _F64_OF_FLOATS:
                return self._of_floats(working, float(q), float(z), s, Precision((F64,)))
            return self._of_integer(working, q, z, s, Precision((F64,)))
        if rule.difference is Difference.DOUBLE:
            d = working.integer(StepKind.SUBTRACT_ZERO_POINT, "d", "q - z", q - z)
            y = working.float(StepKind.MULTIPLY, "y", "d * s", Precision((F64,)).multiply(float(d), s), F64)
            return expressed_as(working, "y", convert(working, "y", y, F32), expressed)
        if rule.difference is Difference.DOUBLE_OF_F32:
            left = integer_as(working, "q", q, Precision((F32,)))
            y = self._of_floats(working, left, float(z), s, Precision((F64,)))
            return convert(working, "y", y if expressed is F16 else convert(working, "y", y, F32), expressed)
        steps = step_precision(rule, expressed)
        if rule.difference not in _OF_FLOATS:
            return expressed_as(working, "y", self._of_integer(working, q, z, s, steps), expressed)
        # An integer that passes through f32 is rounded twice.
        through = steps if rule.difference is Difference.FLOATS_OF_F32 else Precision((steps.element,))
        left, right = (integer_as(working, name, number, through) for name, number in (("q", q), ("z", z)))
        return expressed_as(working, "y", self._of_floats(working, left, right, s, steps), expressed)

    @staticmethod
    def _of_floats(working: Working, q: float, z: float, s: float, steps: Precision) -> float:
        d = working.float(StepKind.SUBTRACT_ZERO_POINT, "d", "q - z", steps.subtract(q, z), steps.element)
        return working.float(StepKind.MULTIPLY, "y", "d * s", steps.multiply(d, s), steps.element)

    @staticmethod
    def _of_integer(working: Working, q: int, z: int, s: float, steps: Precision) -> float:
        precision = INTEGER if wrap_int32(q - z) == q - z else "i32"
        d = working.integer(StepKind.SUBTRACT_ZERO_POINT, "d", "q - z", wrap_int32(q - z), precision)
        whole = integer_as(working, "d", d, Precision((steps.element,)))
        return working.float(StepKind.MULTIPLY, "y", "d * s", steps.multiply(whole, s), steps.element)


def integer_as(working: Working, symbol: str, number: int, to: Precision) -> float:
    """Return an integer as a float. Add a step if that is another number."""
    found = to.round(Fraction(number))
    if found.exact is not None or found.value != number:
        working.float(StepKind.CONVERT, symbol, f"{to.element.name}({symbol})", found, to.element)
    return found.value


def convert(working: Working, symbol: str, value: float, to: FloatElement) -> float:
    """Add the step from a float to a float of a narrower type, and return its result."""
    return working.float(StepKind.CONVERT, symbol, f"{to.name}({symbol})", Precision((to,)).of(value), to)


def expressed_as(working: Working, symbol: str, value: float, expressed: FloatElement) -> float:
    """Return a float as one of the expressed type. Add a step if the last one was in another type."""
    if working.steps[-1].precision == expressed.name:
        return value
    return convert(working, symbol, value, expressed)


def signed_zero(value: float) -> Rounded:
    """Return `value` + 0, which differs from `value` only in the sign of a zero."""
    return Rounded(value + 0.0)
