"""Explains dequantize: which rule applies to an element, and the steps to the real number that it becomes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction

from requant.convert.cast import CastPlan
from requant.convert.dequantize import DequantizeRule, dequantize_rule, plan_dequantize
from requant.convert.explain.cast import cast_explainer, decode
from requant.convert.explain.explanation import (
    Array,
    ElementExplanation,
    Explainer,
    StepKind,
    formulas,
    numbers,
    parameter_index,
)
from requant.convert.explain.float_steps import F16, F32, F64, Precision, Rounded, signed_zero, wrap_int32
from requant.convert.explain.working import INTEGER, Scales, Working, compute_type_of, float_text, step_precision
from requant.convert.quantile import table_values, zero_points_in
from requant.formats.elements import FloatElement
from requant.formats.rules import Difference
from requant.mlir.types import TensorType, Type
from requant.plan.operands import QuantizedOperand, static_shape
from requant.plan.plan import Plan
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
        if compute_type_of(expressed) is F64:
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
    rounded = to.round(Fraction(number))
    if rounded.exact is not None or rounded.value != number:
        working.float(StepKind.CONVERT, symbol, f"{to.element.name}({symbol})", rounded, to.element)
    return rounded.value


def convert(working: Working, symbol: str, value: float, to: FloatElement) -> float:
    """Add the step from a float to a float of a narrower type, and return its result."""
    return working.float(StepKind.CONVERT, symbol, f"{to.name}({symbol})", Precision((to,)).of(value), to)


def expressed_as(working: Working, symbol: str, value: float, expressed: FloatElement) -> float:
    """Return a float as one of the expressed type. Add a step if the last one was in another type."""
    if working.steps[-1].precision == expressed.name:
        return value
    return convert(working, symbol, value, expressed)


@dataclass(frozen=True, slots=True)
class DequantizeExplainer(Explainer):
    """From the stored numbers of `operand` to floats."""

    operand: QuantizedOperand

    def element(self, index: int, source: Array) -> ElementExplanation:
        (q,) = numbers(source[index : index + 1], self.plan.input_type)
        return self.explained(Working(), int(q), index)

    def formula(self) -> tuple[str, ...]:
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
        return self.integers.explain(working, q, parameter)


@dataclass(frozen=True, slots=True)
class _OfSmallFloats(DequantizeExplainer):
    """The value of the code times the scale. The only zero point, 0, may be added."""

    rule: OperationRule
    scales: Scales

    def real(self, working: Working, q: int, parameter: int) -> float:
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


def _explainer_of(plan: Plan, resolved: DequantizeRule) -> DequantizeExplainer:
    rule, operand = resolved.rule, resolved.operand
    scales = Scales.of(rule, operand)
    if operand.is_float:
        return _OfSmallFloats(plan, operand, rule, scales)
    if operand.quantile is not None:
        values = tuple(map(float, table_values(operand.quantile, operand.expressed)))
        zero_points = tuple(map(float, zero_points_in(operand.expressed, operand.zero_points)))
        return _OfTable(plan, operand, rule, scales, values, zero_points)
    return _OfIntegers(plan, operand, IntegerDequantization(rule, scales))
