"""Explains quantize: which rule applies to an element, and the steps to the number that it becomes.

    v = x / s, or x * r;   w = v + z;   t, rounded;   q, within the bounds of the type
    v = x / s, or x * r;   n, rounded;   t = n + z;   q, within the bounds of the type

Symbols mean the same under all profiles: the first symbol whose value differs is where two explanations diverge.

Bounds are applied last. Profiles that clamp before they round have the same results.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from typing import Any

from requant.convert.cast import CastPlan
from requant.convert.explain.cast import FloatCodes, cast_explainer
from requant.convert.explain.explanation import (
    Array,
    ElementExplanation,
    Explainer,
    Saturation,
    StepKind,
    formulas,
    numbers,
    parameter_index,
)
from requant.convert.explain.float_steps import (
    F32,
    F64,
    Draw,
    Precision,
    Rounded,
    precision,
    round_to_integer,
    signed_zero,
    wrap_int32,
)
from requant.convert.explain.working import (
    INTEGER,
    Scales,
    Working,
    compute_type_of,
    exact_text,
    float_text,
    step_precision,
)
from requant.convert.quantile import table_values, zero_points_in
from requant.convert.quantize import NanPolicy, QuantizeRule, plan_quantize, quantize_rule
from requant.convert.quantize_plans import Runs
from requant.formats.elements import FloatElement
from requant.formats.rounding import Rounding
from requant.formats.rules import Overflow, Quotient
from requant.mlir.types import TensorType, Type
from requant.plan.operands import QuantizedOperand, float_element, static_shape
from requant.plan.plan import Plan
from requant.profiles import OperationRule, ZeroPoint, profile_named
from requant.profiles.rule import NanResult

_INT32_MINIMUM = -(1 << 31)
_INT32_MAXIMUM = (1 << 31) - 1
_LARGEST_F32_IN_INT32 = (1 << 31) - 128
_SMALLEST_NORMAL = 2.0**-126
_FORMULAS = {
    Rounding.NEAREST_EVEN: "RNE({})",
    Rounding.NEAREST_AWAY: "RNA({})",
    Rounding.NEAREST_UP: "floor({} + 1/2)",
    Rounding.NEAREST_DOWN: "ceil({} - 1/2)",
    Rounding.TOWARD_ZERO: "trunc({})",
    Rounding.FLOOR: "floor({})",
    Rounding.CEILING: "ceil({})",
    Rounding.STOCHASTIC: "floor({} + u)",
}


@dataclass(frozen=True, slots=True)
class Stored:
    """What an element is stored as."""

    value: int
    saturated: Saturation | None = None


def beyond(value: float | int, lowest: float | int, highest: float | int) -> Saturation | None:
    """Return at which end a number is out of bounds, None within them."""
    return Saturation.LOW if value < lowest else Saturation.HIGH if value > highest else None


def quotient_steps(
    working: Working, rule: OperationRule, scales: Scales, x: float, parameter: int, steps: Precision
) -> float:
    """Add the steps to v, x / s as the rule computes it, and return v. Not for a fused multiplication."""
    if rule.quotient is Quotient.DIVISION:
        s = scales.show(working, parameter)
        return working.float(StepKind.DIVIDE, "v", "x / s", steps.divide(x, s), steps.element)
    r = _reciprocal(working, rule, scales, parameter)
    return working.float(StepKind.MULTIPLY, "v", "x * r", steps.multiply(x, r), steps.element)


def _reciprocal(working: Working, rule: OperationRule, scales: Scales, parameter: int) -> float:
    """Add the steps to r, the reciprocal of the type's scale or of s, and return r."""
    compute_type = compute_type_of(scales.operand.expressed)
    if rule.quotient is Quotient.RECIPROCAL_OF_F64:
        exact = 1 / Fraction(scales.known(working, parameter))
        both = Precision((F64, compute_type)).round(exact)
        return working.float(StepKind.RECIPROCAL, "r", f"{compute_type.name}(f64(1 / scale))", both, compute_type)
    s = scales.show(working, parameter)
    r = working.float(StepKind.RECIPROCAL, "r", "1 / s", Precision((compute_type,)).divide(1.0, s), compute_type)
    return _flushed(working, "r", r, compute_type) if rule.flushes else r


def _flushed(working: Working, symbol: str, value: float, element: FloatElement) -> float:
    if value == 0.0 or not abs(value) < _SMALLEST_NORMAL:
        return value
    return working.float(StepKind.FLUSH, symbol, f"flush({symbol})", Rounded(0.0, Fraction(value)), element)


@dataclass(frozen=True, slots=True)
class IntegerQuantization:
    """How the elements of a tensor become integers. `seed`: of stochastic rounding."""

    rule: OperationRule
    scales: Scales
    seed: int = 0

    @property
    def operand(self) -> QuantizedOperand:
        """The type of the integers."""
        return self.scales.operand

    def explain(self, working: Working, x: float, parameter: int, index: int) -> Stored:
        """Add the steps of element `index`, which is x, and return what it is stored as."""
        rule, scales, operand = self.rule, self.scales, self.operand
        compute_type = compute_type_of(operand.expressed)
        steps = step_precision(rule, operand.expressed)
        z = operand.zero_points[parameter]
        working.know(z=str(z), lo=str(operand.minimum), hi=str(operand.maximum))
        if rule.flushes:
            x = _flushed(working, "x", x, compute_type)
        symbol = "v"
        if rule.quotient is Quotient.FUSED:
            r = _reciprocal(working, rule, scales, parameter)
            a = self._float_zero_point(working, z, precision(compute_type))
            value = Precision((compute_type,)).multiply_add(x, r, a)
            v = working.float(StepKind.MULTIPLY_ADD, "w", "fma(x, r, z)", value, compute_type)
            symbol = "w"
        else:
            v = quotient_steps(working, rule, scales, x, parameter, steps)
            if rule.zero_point is ZeroPoint.BEFORE_ROUNDING:
                a = self._float_zero_point(working, z, steps)
                v = working.float(StepKind.ADD_ZERO_POINT, "w", "v + z", steps.add(v, a), steps.element)
                symbol = "w"
        if math.isnan(v):
            return self._nan(working, z)
        n = self._rounded(working, symbol, v, index)
        return self._within_bounds(working, n, z, steps, compute_type)

    @property
    def _adds_before(self) -> bool:
        return self.rule.zero_point is ZeroPoint.BEFORE_ROUNDING or self.rule.quotient is Quotient.FUSED

    @property
    def _integer(self) -> str:
        """The symbol of the result of rounding: t if it includes the zero point, else n."""
        return "t" if self._adds_before else "n"

    @property
    def _adds_in_float(self) -> bool:
        return self._adds_before or self.rule.overflow in (Overflow.FLOAT_CLAMP, Overflow.FLOAT_SATURATE)

    @staticmethod
    def _float_zero_point(working: Working, z: int, to: Precision) -> float:
        """Return the zero point as a float. Add a step if that is another number."""
        rounded = Precision((to.element,)).round(Fraction(z))
        if rounded.exact is None:
            return rounded.value
        return working.float(StepKind.CONVERT, "z", f"{to.element.name}(z)", rounded, to.element)

    def _rounded(self, working: Working, symbol: str, v: float, index: int) -> float | int:
        """Round to an integer. Infinities stay."""
        rule, result = self.rule, self._integer
        formula = _FORMULAS[rule.rounding].format(symbol)
        if math.isinf(v):
            working.text(StepKind.ROUND, result, formula, working.known(symbol), INTEGER)
            return v
        draw = None
        if rule.rounding is Rounding.STOCHASTIC:
            draw = Draw.of(self.seed, index)
            working.know(u=exact_text(draw.fraction))
        exact = Fraction(v)
        n = round_to_integer(exact, rule.rounding, draw)
        return working.integer(StepKind.ROUND, result, formula, n, exact=exact)

    def _within_bounds(
        self, working: Working, n: float | int, z: int, steps: Precision, compute_type: FloatElement
    ) -> Stored:
        """Add the zero point, unless it has been added, and apply the bounds."""
        operand, overflow = self.operand, self.rule.overflow
        if overflow in (Overflow.INDEFINITE, Overflow.INDEFINITE_BELOW):
            return self._through_int32(working, n, z)
        total = n
        if not self._adds_in_float:
            if isinstance(n, int):
                total = working.integer(StepKind.ADD_ZERO_POINT, "t", "n + z", n + z)
            else:
                working.text(StepKind.ADD_ZERO_POINT, "t", "n + z", working.known("n"), INTEGER)
        elif not self._adds_before:
            a = self._float_zero_point(working, z, Precision((compute_type,)))
            whole = Precision((compute_type,)).add(float(n), a)
            total = working.float(StepKind.ADD_ZERO_POINT, "t", f"{compute_type.name}(n + z)", whole, compute_type)
        saturated = beyond(total, operand.minimum, operand.maximum)
        lowest, highest = self._bounds(steps)
        working.know(lo=str(lowest), hi=str(highest))
        q = int(min(max(total, lowest), highest))
        working.integer(StepKind.CLAMP, "q", "clamp(t, lo, hi)", q)
        if overflow is Overflow.FLOAT_CLAMP and q > _INT32_MAXIMUM:
            q = working.integer(StepKind.CONVERT, "q", "int32(q)", _INT32_MINIMUM, "i32")
        return Stored(q, saturated)

    def _through_int32(self, working: Working, n: float | int, z: int) -> Stored:
        """Convert to int32 as x86 does, add the zero point, wrapping, and clamp."""
        operand = self.operand
        fits = _INT32_MINIMUM <= n <= _INT32_MAXIMUM
        symbol = self._integer
        if self.rule.overflow is Overflow.INDEFINITE:
            formula, converted = f"int32({symbol})", int(n) if fits else _INT32_MINIMUM
        else:
            formula = f"int32(clamp({symbol}, {_INT32_MINIMUM}, {_LARGEST_F32_IN_INT32}))"
            converted = int(min(max(n, _INT32_MINIMUM), _LARGEST_F32_IN_INT32))
        i = working.integer(StepKind.CONVERT, "i", formula, converted, "i32")
        symbol, total = "i", i
        if not self._adds_before:
            symbol = "t"
            total = working.integer(StepKind.ADD_ZERO_POINT, "t", "i + z", wrap_int32(i + z), "i32")
        q = min(max(total, operand.minimum), operand.maximum)
        working.integer(StepKind.CLAMP, "q", f"clamp({symbol}, lo, hi)", q)
        saturated = beyond(total, operand.minimum, operand.maximum)
        if self.rule.overflow is Overflow.INDEFINITE and not fits and saturated is None:
            # Clamping changed nothing, but the value was out of range: it counts as saturated low.
            saturated = Saturation.LOW
        return Stored(q, saturated)

    def _bounds(self, steps: Precision) -> tuple[int, int]:
        """Return the bounds as they are applied: to a float, rounded to its type."""
        rule, operand = self.rule, self.operand
        if not self._adds_in_float or rule.overflow is Overflow.UNDEFINED:
            return operand.minimum, operand.maximum
        low, high = (
            Precision((steps.element,)).round(Fraction(bound)).value for bound in (operand.minimum, operand.maximum)
        )
        if rule.overflow is Overflow.FLOAT_CLAMP and operand.highest > 65535:
            return int(low), int(high)
        # Bounds beyond the largest f16 are infinite, and what they clamp to saturates as it is stored.
        lowest, highest = (min(max(bound, operand.lowest), operand.highest) for bound in (low, high))
        return int(lowest), int(highest)

    def _nan(self, working: Working, z: int) -> Stored:
        """Add the steps for NaN, and return what it is stored as."""
        operand, nan_result = self.operand, self.rule.nan_result
        lowest, highest = operand.minimum, operand.maximum
        formulas = {
            NanResult.LOWEST: ("lo", lowest),
            NanResult.HIGHEST: ("hi", highest),
            NanResult.ZERO: ("0", 0),
            NanResult.ZERO_POINT: ("z", z),
            NanResult.INT32_MINIMUM: (str(_INT32_MINIMUM), _INT32_MINIMUM),
        }
        if nan_result in formulas:
            return Stored(working.integer(StepKind.NAN, "q", *formulas[nan_result]))
        i = _INT32_MINIMUM if nan_result is NanResult.INDEFINITE else _LARGEST_F32_IN_INT32
        working.integer(StepKind.NAN, "i", "int32(v)", i, "i32")
        symbol, total = "i", i
        if not self._adds_in_float:
            symbol = "t"
            total = working.integer(StepKind.ADD_ZERO_POINT, "t", "i + z", wrap_int32(i + z), "i32")
        return Stored(
            working.integer(StepKind.CLAMP, "q", f"clamp({symbol}, lo, hi)", min(max(total, lowest), highest))
        )


@dataclass(frozen=True, slots=True)
class QuantizeExplainer(Explainer):
    """From floats to the stored numbers of `operand`."""

    operand: QuantizedOperand

    def element(self, index: int, source: Array) -> ElementExplanation:
        (x,) = numbers(source[index : index + 1], self.plan.input_type)
        return self.explained(Working(), float(x), index)

    def formula(self) -> tuple[str, ...]:
        return formulas(self.explained(Working(), 0.0, 0)) if self.plan.elements else ()

    def explained(self, working: Working, x: float, index: int) -> ElementExplanation:
        """Add the steps of element `index`, which is x, and return the explanation."""
        parameter = parameter_index(static_shape(self.operand.tensor), self.operand.blocks, index)
        text = float_text(x, float_element(self.plan.input_type, "input"))
        working.know(x=text)
        stored = self.quantized_value(working, x, parameter, index)
        return ElementExplanation(text, parameter, tuple(working.steps), stored.value, stored.saturated)

    @abstractmethod
    def quantized_value(self, working: Working, x: float, parameter: int, index: int) -> Stored:
        """Add the steps of element `index`, and return what it is stored as."""


@dataclass(frozen=True, slots=True)
class _ToIntegers(QuantizeExplainer):
    """Elements at `boundary_nibbles` have the rule `alone`."""

    integers: IntegerQuantization
    alone: IntegerQuantization
    boundary_nibbles: frozenset[int]

    def quantized_value(self, working: Working, x: float, parameter: int, index: int) -> Stored:
        rule = self.alone if index in self.boundary_nibbles else self.integers
        return rule.explain(working, x, parameter, index)


@dataclass(frozen=True, slots=True)
class _ToSmallFloats(QuantizeExplainer):
    """x / s as a small float. The only zero point, 0, may be added, which shows in the sign of a zero."""

    rule: OperationRule
    scales: Scales
    codes: FloatCodes

    def quantized_value(self, working: Working, x: float, parameter: int, index: int) -> Stored:
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

    def quantized_value(self, working: Working, x: float, parameter: int, index: int) -> Stored:
        operand, rule, expressed = self.operand, self.rule, self.operand.expressed
        steps = step_precision(rule, expressed)
        z = self.zero_points[parameter]
        working.know(z=float_text(z, expressed), lo=str(operand.minimum))
        v = quotient_steps(working, rule, self.scales, x, parameter, steps)
        w = working.float(StepKind.ADD_ZERO_POINT, "w", "v + z", steps.add(v, z), steps.element)
        if math.isnan(w):
            if rule.nan_result is NanResult.ZERO_POINT:
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
    codes: dict[float, int] = {}
    for code in range(operand.minimum, operand.maximum + 1):
        codes.setdefault(float(values[code - operand.lowest]), code)
    return tuple(sorted(codes.items()))


def quantize_explainer(
    input_type: TensorType,
    output_type: Type,
    profile: str = "stablehlo",
    *,
    rounding: Rounding | None = None,
    nan: NanPolicy = NanPolicy.PROFILE,
    seed: int = 0,
    random_bits: int | None = None,
    saturate: bool | None = None,
) -> Explainer:
    """Return the explanation of `plan_quantize`, whose arguments these are. Raise what that raises."""
    overrides: dict[str, Any] = {"rounding": rounding, "nan": nan, "saturate": saturate}
    plan = plan_quantize(input_type, output_type, profile, seed=seed, random_bits=random_bits, **overrides)
    if isinstance(plan, CastPlan):
        return cast_explainer(plan, rounding=rounding, saturate=saturate, seed=seed, random_bits=random_bits)
    return _explainer_of(plan, quantize_rule(plan.input_type, plan.output_type, profile, **overrides), seed, saturate)


def _explainer_of(plan: Plan, resolved: QuantizeRule, seed: int, saturate: bool | None) -> QuantizeExplainer:
    rule, operand = resolved.rule, resolved.operand
    scales = Scales.of(rule, operand)
    if resolved.encoder is not None:
        codes = FloatCodes(profile_named(plan.profile).cast_rule(), operand.storage, saturate=saturate)
        return _ToSmallFloats(plan, operand, rule, scales, codes)
    if operand.quantile is not None:
        entries = _entries(table_values(operand.quantile, operand.expressed), operand)
        zero_points = tuple(map(float, zero_points_in(operand.expressed, operand.zero_points)))
        return _ToTable(plan, operand, rule, scales, entries, zero_points)
    integers = IntegerQuantization(rule, scales, seed)
    if resolved.alone is None:
        return _ToIntegers(plan, operand, integers, integers, frozenset())
    boundary_nibbles = frozenset(Runs.of(operand).boundary_nibbles(0, operand.elements).tolist())
    return _ToIntegers(plan, operand, integers, IntegerQuantization(resolved.alone, scales, seed), boundary_nibbles)
