"""Explains quantize: which rule applies to an element, and the number that it becomes."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from typing import Any

from requant.convert.cast import CastPlan
from requant.convert.explain.cast import cast_explainer
from requant.convert.explain.dequantize_integer import signed_zero
from requant.convert.explain.explainer import Array, Explainer, formulas, numbers
from requant.convert.explain.explanation import ElementExplanation, StepKind
from requant.convert.explain.float_codes import FloatCodes
from requant.convert.explain.float_steps import F32
from requant.convert.explain.number_text import exact_text, float_text
from requant.convert.explain.parameter_index import parameter_index
from requant.convert.explain.quantize_integer import IntegerQuantization, Stored, beyond, quotient_steps
from requant.convert.explain.scales import Scales, step_precision
from requant.convert.explain.working import Working
from requant.convert.quantile import table_values, zero_points_in
from requant.convert.quantize import NanPolicy, QuantizeRule, plan_quantize, quantize_rule
from requant.convert.quantize.split_bytes import Runs
from requant.mlir.types import TensorType, Type
from requant.plan.operands import QuantizedOperand, float_element, static_shape
from requant.plan.plan import Plan
from requant.profiles import OperationRule, Rounding, profile_named
from requant.profiles.rule import Missing


@dataclass(frozen=True, slots=True)
class QuantizeExplainer(Explainer):
    """From floats to the stored numbers of `operand`."""

    operand: QuantizedOperand

    def element(self, index: int, source: Array) -> ElementExplanation:
        """See Explainer.element."""
        (x,) = numbers(source[index : index + 1], self.plan.input_type)
        return self.explained(Working(), float(x), index)

    def formula(self) -> tuple[str, ...]:
        """See Explainer.formula."""
        return formulas(self.explained(Working(), 0.0, 0)) if self.plan.elements else ()

    def explained(self, working: Working, x: float, index: int) -> ElementExplanation:
        """Add the steps of element `index`, which is x, and return the explanation."""
        parameter = parameter_index(static_shape(self.operand.tensor), self.operand.blocks, index)
        text = float_text(x, float_element(self.plan.input_type, "input"))
        working.know(x=text)
        stored = self.stored(working, x, parameter, index)
        return ElementExplanation(text, parameter, tuple(working.steps), stored.value, stored.saturated)

    @abstractmethod
    def stored(self, working: Working, x: float, parameter: int, index: int) -> Stored:
        """Add the steps of element `index`, and return what it is stored as."""


@dataclass(frozen=True, slots=True)
class _ToIntegers(QuantizeExplainer):
    """Elements at `places_alone` have the rule `alone`."""

    integers: IntegerQuantization
    alone: IntegerQuantization
    places_alone: frozenset[int]

    def stored(self, working: Working, x: float, parameter: int, index: int) -> Stored:
        """See QuantizeExplainer.stored."""
        rule = self.alone if index in self.places_alone else self.integers
        return rule.explain(working, x, parameter, index)


@dataclass(frozen=True, slots=True)
class _ToSmallFloats(QuantizeExplainer):
    """x / s as a small float. The only zero point, 0, may be added, which shows in the sign of a zero."""

    rule: OperationRule
    scales: Scales
    codes: FloatCodes

    def stored(self, working: Working, x: float, parameter: int, index: int) -> Stored:
        """See QuantizeExplainer.stored."""
        # x / s is computed in f32 and then rounded to the precision of the rule.
        v = quotient_steps(
            working, self.rule, self.scales, x, parameter, step_precision(self.rule, self.operand.expressed)
        )
        if self.rule.float_zero_point:
            v = working.float(StepKind.ADD_ZERO_POINT, "v", "v + 0", signed_zero(v), F32)
        code = self.codes.explain(working, "v", v)
        return Stored(code.code, code.saturated)


@dataclass(frozen=True, slots=True)
class _ToTable(QuantizeExplainer):
    """x / s + z as the code of the nearest value. `entries`: the distinct values, ascending, with their lowest code."""

    rule: OperationRule
    scales: Scales
    entries: tuple[tuple[float, int], ...]
    zero_points: tuple[float, ...]

    def stored(self, working: Working, x: float, parameter: int, index: int) -> Stored:
        """See QuantizeExplainer.stored."""
        operand, rule, expressed = self.operand, self.rule, self.operand.expressed
        steps = step_precision(rule, expressed)
        z = self.zero_points[parameter]
        working.know(z=float_text(z, expressed), lo=str(operand.minimum))
        v = quotient_steps(working, rule, self.scales, x, parameter, steps)
        w = working.float(StepKind.ADD_ZERO_POINT, "w", "v + z", steps.add(v, z), steps.element)
        if math.isnan(w):
            if rule.missing is Missing.ZERO_POINT:
                return Stored(working.integer(StepKind.NAN, "q", "code(nearest_value(z))", self._nearest(z)[1]))
            return Stored(working.integer(StepKind.NAN, "q", "lo", operand.minimum))
        value, q, tie = self._nearest(w)
        unrounded = None if value == w or math.isinf(w) else exact_text(Fraction(w))
        text = float_text(value, expressed)
        working.text(StepKind.ROUND, "t", "nearest_value(w)", text, expressed.name, unrounded=unrounded, tie=tie)
        working.integer(StepKind.ENCODE, "q", "code(t)", q)
        return Stored(q, beyond(w, self.entries[0][0], self.entries[-1][0]))

    def _nearest(self, w: float) -> tuple[float, int, bool]:
        """Return the nearest value, its code, and whether it is a tie, of which the smaller value is taken."""
        place = bisect_left(self.entries, w, key=itemgetter(0))
        if place in (0, len(self.entries)) or math.isinf(w):
            value, code = self.entries[min(place, len(self.entries) - 1)]
            return value, code, False
        below, above = self.entries[place - 1], self.entries[place]
        farther = Fraction(w) - Fraction(below[0]), Fraction(above[0]) - Fraction(w)
        value, code = above if farther[0] > farther[1] else below
        return value, code, farther[0] == farther[1]


def _entries(values: Array, operand: QuantizedOperand) -> tuple[tuple[float, int], ...]:
    """Return the distinct values of a table with their lowest codes, within the bounds of the type."""
    found: dict[float, int] = {}
    for code in range(operand.minimum, operand.maximum + 1):
        found.setdefault(float(values[code - operand.lowest]), code)
    return tuple(sorted(found.items()))


def quantize_explainer(
    input_type: TensorType,
    output_type: Type,
    profile: str = "stablehlo",
    *,
    rounding: Rounding | None = None,
    nan: NanPolicy = NanPolicy.PROFILE,
    seed: int = 0,
    saturate: bool | None = None,
) -> Explainer:
    """Return the explanation of `plan_quantize`, whose arguments these are. Raise what that raises."""
    overrides: dict[str, Any] = {"rounding": rounding, "nan": nan, "saturate": saturate}
    plan = plan_quantize(input_type, output_type, profile, seed=seed, **overrides)
    if isinstance(plan, CastPlan):
        return cast_explainer(plan, rounding=rounding, saturate=saturate)
    return _explainer_of(plan, quantize_rule(plan.input_type, plan.output_type, profile, **overrides), seed, saturate)


def _explainer_of(plan: Plan, found: QuantizeRule, seed: int, saturate: bool | None) -> QuantizeExplainer:
    rule, operand = found.rule, found.operand
    scales = Scales.of(rule, operand)
    if found.encoder is not None:
        codes = FloatCodes(profile_named(plan.profile).cast_rule(), operand.storage, saturate=saturate)
        return _ToSmallFloats(plan, operand, rule, scales, codes)
    if operand.quantile is not None:
        entries = _entries(table_values(operand.quantile, operand.expressed), operand)
        zero_points = tuple(map(float, zero_points_in(operand.expressed, operand.zero_points)))
        return _ToTable(plan, operand, rule, scales, entries, zero_points)
    integers = IntegerQuantization(rule, scales, seed)
    if found.alone is None:
        return _ToIntegers(plan, operand, integers, integers, frozenset())
    places = frozenset(Runs.of(operand).alone(0, operand.elements).tolist())
    return _ToIntegers(plan, operand, integers, IntegerQuantization(found.alone, scales, seed), places)
