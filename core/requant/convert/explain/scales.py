"""The scales of a type as a rule computes with them."""

from __future__ import annotations

from dataclasses import dataclass

from requant.convert.explain.explanation import StepKind
from requant.convert.explain.float_steps import F32, F64, Precision, precision
from requant.convert.explain.number_text import float_text
from requant.convert.explain.working import Working
from requant.formats.elements import FloatElement
from requant.plan.lanes import LANES
from requant.plan.operands import QuantizedOperand
from requant.profiles import OperationRule
from requant.profiles.rule import Steps


def lanes_of(expressed: FloatElement) -> FloatElement:
    """Return the narrowest type that an expressed type is computed in: f32, or f64."""
    return F64 if LANES[expressed.name] == "<f8" else F32


def step_precision(rule: OperationRule, expressed: FloatElement) -> Precision:
    """Return what the rule rounds each step to."""
    return precision(expressed if rule.steps is Steps.EXPRESSED else lanes_of(expressed))


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
