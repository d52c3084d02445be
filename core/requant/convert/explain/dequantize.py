"""Explains dequantize: which rule applies to an element, and the real number that it becomes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from requant.convert.cast import CastPlan
from requant.convert.dequantize import DequantizeRule, dequantize_rule, plan_dequantize
from requant.convert.explain.cast import cast_explainer, decode
from requant.convert.explain.dequantize_integer import IntegerDequantization, expressed_as, signed_zero
from requant.convert.explain.explainer import Array, Explainer, formulas, numbers
from requant.convert.explain.explanation import ElementExplanation, StepKind
from requant.convert.explain.float_steps import F32, Precision, Rounded
from requant.convert.explain.number_text import float_text
from requant.convert.explain.parameter_index import parameter_index
from requant.convert.explain.scales import Scales, step_precision
from requant.convert.explain.working import Working
from requant.convert.quantile import table_values, zero_points_in
from requant.mlir.types import TensorType, Type
from requant.plan.operands import QuantizedOperand, static_shape
from requant.plan.plan import Plan
from requant.profiles import OperationRule


@dataclass(frozen=True, slots=True)
class DequantizeExplainer(Explainer):
    """From the stored numbers of `operand` to floats."""

    operand: QuantizedOperand

    def element(self, index: int, source: Array) -> ElementExplanation:
        """See Explainer.element."""
        (q,) = numbers(source[index : index + 1], self.plan.input_type)
        return self.explained(Working(), int(q), index)

    def formula(self) -> tuple[str, ...]:
        """See Explainer.formula."""
        operand = self.operand
        ordinary = 0 if operand.is_float else max(operand.lowest, min(1, operand.highest))
        return formulas(self.explained(Working(), ordinary, 0)) if self.plan.elements else ()

    def explained(self, working: Working, q: int, index: int) -> ElementExplanation:
        """Add the steps of element `index`, which is stored as q, and return the explanation."""
        parameter = parameter_index(static_shape(self.operand.tensor), self.operand.blocks, index)
        value = self.real(working, q, parameter)
        return ElementExplanation(str(q), parameter, tuple(working.steps), value)

    @abstractmethod
    def real(self, working: Working, q: int, parameter: int) -> float:
        """Add the steps of an element, and return its real number."""


@dataclass(frozen=True, slots=True)
class _OfIntegers(DequantizeExplainer):
    integers: IntegerDequantization

    def real(self, working: Working, q: int, parameter: int) -> float:
        """See DequantizeExplainer.real."""
        return self.integers.explain(working, q, parameter)


@dataclass(frozen=True, slots=True)
class _OfSmallFloats(DequantizeExplainer):
    """The value of the code times the scale. The only zero point, 0, may be added."""

    rule: OperationRule
    scales: Scales

    def real(self, working: Working, q: int, parameter: int) -> float:
        """See DequantizeExplainer.real."""
        s = self.scales.show(working, parameter)
        v = decode(working, "q", q, self.operand.storage)
        y = working.float(StepKind.MULTIPLY, "y", "v * s", Precision((F32,)).multiply(v, s), F32)
        y = expressed_as(working, "y", y, self.operand.expressed)
        if self.rule.float_zero_point:
            y = working.float(StepKind.ADD_ZERO_POINT, "y", "y + 0", signed_zero(y), self.operand.expressed)
        return y


@dataclass(frozen=True, slots=True)
class _OfTable(DequantizeExplainer):
    """The value of the code, less the zero point, times the scale. `values`: of the codes from the lowest on."""

    rule: OperationRule
    scales: Scales
    values: tuple[float, ...]
    zero_points: tuple[float, ...]

    def real(self, working: Working, q: int, parameter: int) -> float:
        """See DequantizeExplainer.real."""
        operand = self.operand
        steps, expressed = step_precision(self.rule, operand.expressed), operand.expressed
        z = self.zero_points[parameter]
        working.know(q=str(q), z=float_text(z, expressed))
        s = self.scales.show(working, parameter)
        value = Rounded(self.values[q - operand.lowest])
        t = working.float(StepKind.DECODE, "t", "value(q)", value, expressed)
        d = working.float(StepKind.SUBTRACT_ZERO_POINT, "d", "t - z", steps.subtract(t, z), expressed)
        return working.float(StepKind.MULTIPLY, "y", "d * s", steps.multiply(d, s), expressed)


def dequantize_explainer(
    input_type: TensorType,
    output_type: Type | None = None,
    profile: str = "stablehlo",
    *,
    more_storages: tuple[str, ...] = (),
) -> Explainer:
    """Return the explanation of `plan_dequantize`, whose arguments these are. Raise what that raises."""
    plan = plan_dequantize(input_type, output_type, profile, more_storages=more_storages)
    if isinstance(plan, CastPlan):
        return cast_explainer(plan)
    return _explainer_of(plan, dequantize_rule(plan.input_type, plan.output_type, profile, more_storages=more_storages))


def _explainer_of(plan: Plan, found: DequantizeRule) -> DequantizeExplainer:
    rule, operand = found.rule, found.operand
    scales = Scales.of(rule, operand)
    if operand.is_float:
        return _OfSmallFloats(plan, operand, rule, scales)
    if operand.quantile is not None:
        values = tuple(map(float, table_values(operand.quantile, operand.expressed)))
        zero_points = tuple(map(float, zero_points_in(operand.expressed, operand.zero_points)))
        return _OfTable(plan, operand, rule, scales, values, zero_points)
    return _OfIntegers(plan, operand, IntegerDequantization(rule, scales))
