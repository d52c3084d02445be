"""Explains requantize: the factor, the multiplier and shift that represent it, and what an element becomes by them.

Where a profile has no scheme, an element is dequantized and quantized again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from requant.convert.explain.dequantize import DequantizeExplainer, dequantize_explainer, integer_as
from requant.convert.explain.explanation import (
    Array,
    ContradictionError,
    ElementExplanation,
    Explainer,
    Saturation,
    StepKind,
    formulas,
    numbers,
    parameter_index,
)
from requant.convert.explain.float_steps import F32, F64, Precision, Rounded, precision, round_to_integer, wrap_int32
from requant.convert.explain.quantize import QuantizeExplainer, Stored, beyond, quantize_explainer
from requant.convert.explain.working import INTEGER, Working, float_text
from requant.convert.requantize import ThroughRealPlan, plan_requantize
from requant.convert.scaling import ScalingPlan, sum_rule
from requant.errors import UnsupportedError
from requant.formats.elements import FLOATS
from requant.formats.rounding import Rounding
from requant.kernels.convert.requantize.rules import FixedPointRule, FloatRule
from requant.mlir.types import TensorType, Type
from requant.plan.operands import QuantizedOperand, StoredOperand, static_shape
from requant.plan.plan import Plan
from requant.schemes import Factor, FixedPoint, Float, Multiplier, Prepared, Scheme, Sum

_INT32_MAXIMUM = (1 << 31) - 1
_TWICE = (FixedPointRule.DOUBLE, FixedPointRule.DOUBLE_UP)
_ONCE = {
    FixedPointRule.NEAREST_AWAY: (Rounding.NEAREST_AWAY, "RNA(p / 2^r)"),
    FixedPointRule.NEAREST_EVEN: (Rounding.NEAREST_EVEN, "RNE(p / 2^r)"),
    FixedPointRule.FLOOR: (Rounding.FLOOR, "floor(p / 2^r)"),
    FixedPointRule.ODD: (Rounding.ODD, "odd(p / 2^r)"),
}
"""The rules of one rounding but NEAREST_UP: the rounding, and its formula."""


def multiply(working: Working, scheme: Scheme, stage: FixedPoint, multiplier: Multiplier, difference: int) -> int:
    """Add the steps from v, which is `difference`, to y, the scaled integer without a zero point, and return y."""
    prepared = stage.prepare(multiplier)
    m = _multiplier(working, scheme, multiplier, prepared)
    r = working.integer(StepKind.SHIFT, "r", _right_shift(scheme, multiplier, prepared), prepared.shift)
    v = working.integer(StepKind.SUBTRACT_ZERO_POINT, "v", "q - z_in", difference)
    if stage.rule in _TWICE:
        return _twice(working, v, m, r, up=stage.rule is FixedPointRule.DOUBLE_UP)
    p = working.integer(StepKind.MULTIPLY, "p", "v * m", v * m)
    exact = Fraction(p, 1 << r)
    if stage.rule in _ONCE:
        rounding, formula = _ONCE[stage.rule]
        return working.integer(StepKind.SHIFT_RIGHT, "y", formula, round_to_integer(exact, rounding), exact=exact)
    if stage.rule is FixedPointRule.TOSA_DOUBLE and r > 31:
        nudge = -(1 << 30) if v < 0 else 1 << 30
        p = working.integer(StepKind.NUDGE, "p", "p - 2^30" if v < 0 else "p + 2^30", p + nudge)
        exact = Fraction(p, 1 << r)
    y = round_to_integer(exact, Rounding.NEAREST_UP)
    return working.integer(StepKind.SHIFT_RIGHT, "y", "floor(p / 2^r + 1/2)", y, exact=exact)


def _multiplier(working: Working, scheme: Scheme, multiplier: Multiplier, prepared: Prepared) -> int:
    """Return the multiplier that is computed with. Add a step if the rule changes it."""
    if prepared.multiplier == multiplier.multiplier:
        return prepared.multiplier
    # A shift that leaves nothing of the product: the multiplier is taken as 0.
    formula = "min(floor((m + 2^15) / 2^16), 2^15 - 1)" if scheme.reduced is not None else "0"
    return working.integer(StepKind.REDUCE, "m", formula, prepared.multiplier)


def _right_shift(scheme: Scheme, multiplier: Multiplier, prepared: Prepared) -> str:
    """Return the right shift of the product in terms of the scheme's shift."""
    if prepared.multiplier == 0 and multiplier.multiplier != 0:
        return str(prepared.shift)
    sign = scheme.right_shift(1) - scheme.right_shift(0)
    offset = prepared.shift - sign * multiplier.shift
    if sign < 0:
        return f"{offset} - shift"
    return f"shift + {offset}" if offset else "shift"


def _twice(working: Working, v: int, m: int, r: int, *, up: bool) -> int:
    """Add the steps of two roundings: to the high half of the doubled product, and after the rest of the shift."""
    left, right = max(31 - r, 0), max(r - 31, 0)
    working.know(left=str(left), right=str(right))
    exact = Fraction(v << left)
    a = working.integer(StepKind.SHIFT_LEFT, "a", "wrap32(v * 2^left)", wrap_int32(v << left), "i32", exact=exact)
    exact = Fraction(a * m, 1 << 31)
    nearest, formula = round_to_integer(exact, Rounding.NEAREST_UP), "floor((a * m + 2^30) / 2^31)"
    if nearest > _INT32_MAXIMUM:
        nearest, formula = _INT32_MAXIMUM, f"min({formula}, 2^31 - 1)"
    h = working.integer(StepKind.HIGH_MULTIPLY, "h", formula, nearest, "i32", exact=exact)
    exact = Fraction(h, 1 << right)
    rounding = Rounding.NEAREST_UP if up else Rounding.NEAREST_AWAY
    formula = "floor(h / 2^right + 1/2)" if up else "RNA(h / 2^right)"
    y = round_to_integer(exact, rounding)
    return working.integer(StepKind.SHIFT_RIGHT, "y", formula, y, "i32", exact=exact)


_IN_F32 = (FloatRule.F32_EVEN, FloatRule.F32_OFFSET)


@dataclass(frozen=True, slots=True)
class ZeroPoints:
    """Those of an element: of the input and of the output."""

    input: int
    output: int


def scale_by_factor(
    working: Working,
    scheme: Scheme,
    stage: Float,
    multiplier: Multiplier,
    exact_factor: float,
    q: int,
    zeros: ZeroPoints,
    target: StoredOperand,
) -> Stored:
    """Add the steps from q to the output. `exact_factor`: the factor before it became a multiplier."""
    compute_type = F32 if stage.rule in _IN_F32 else F64
    steps = Precision((compute_type,))
    f = steps.of(stage.prepare(multiplier).factor).value
    exact = scheme.represented(multiplier)
    # TOSA's multipliers are rounded to f32; all others are exact in the type that is computed in.
    formula = "f32(m) * 2^-shift" if stage.precision is None else "m * 2^-shift"
    # Written as an f64, which is exact, so that factors of all schemes can be compared.
    working.float(StepKind.FACTOR, "f", formula, Rounded(f, None if Fraction(f) == exact else exact), F64)
    if stage.rule is FloatRule.F32_OFFSET:
        return _with_offset(working, f, exact_factor, q, zeros, target)
    v = working.integer(StepKind.SUBTRACT_ZERO_POINT, "v", "q - z_in", q - zeros.input)
    p = working.float(
        StepKind.MULTIPLY, "p", "v * f", steps.multiply(integer_as(working, "v", v, steps), f), compute_type
    )
    if stage.rule is FloatRule.F64_EVEN_OFFSET:
        w = working.float(StepKind.ADD_ZERO_POINT, "w", "p + z_out", steps.add(p, float(zeros.output)), compute_type)
        y = _rounded(working, "w", w, Rounding.NEAREST_EVEN)
        return clamp(working, "y", y, target.minimum, target.maximum)
    y = _rounded(working, "p", p, Rounding.NEAREST_AWAY if stage.rule is FloatRule.F64_AWAY else Rounding.NEAREST_EVEN)
    if isinstance(y, int):
        t: int | float = _with_zero_point(working, stage, y, zeros.output, target)
    else:
        t = y
        working.text(StepKind.ADD_ZERO_POINT, "t", "y + z_out", working.known("y"), INTEGER)
    return clamp(working, "t", t, target.minimum, target.maximum)


def _with_offset(
    working: Working, f: float, exact_factor: float, q: int, zeros: ZeroPoints, target: StoredOperand
) -> Stored:
    """Add the steps of f32(f32(q) * f) plus the zero points of both sides, merged into one number."""
    steps, wide = Precision((F32,)), Precision((F64,))
    working.know(ratio=float_text(exact_factor, F64))
    product = wide.multiply(float(zeros.input), exact_factor)
    total = wide.subtract(float(zeros.output), product.value)
    exact = Fraction(zeros.output) - zeros.input * Fraction(exact_factor)
    b = steps.of(total.value).value
    b = working.float(
        StepKind.OFFSET, "b", "f32(z_out - z_in * ratio)", Rounded(b, None if exact == Fraction(b) else exact), F32
    )
    p = working.float(StepKind.MULTIPLY, "p", "q * f", steps.multiply(integer_as(working, "q", q, steps), f), F32)
    w = working.float(StepKind.ADD_OFFSET, "w", "p + b", steps.add(p, b), F32)
    y = _rounded(working, "w", w, Rounding.NEAREST_EVEN)
    low, high = (steps.round(Fraction(bound)).value for bound in (target.minimum, target.maximum))
    return clamp(working, "y", y, max(int(low), target.lowest), min(int(high), target.highest))


def _rounded(working: Working, symbol: str, number: float, rounding: Rounding) -> int | float:
    formula = f"{'RNA' if rounding is Rounding.NEAREST_AWAY else 'RNE'}({symbol})"
    if math.isinf(number):
        working.text(StepKind.ROUND, "y", formula, working.known(symbol), INTEGER)
        return number
    exact = Fraction(number)
    return working.integer(StepKind.ROUND, "y", formula, round_to_integer(exact, rounding), exact=exact)


def _with_zero_point(
    working: Working, stage: FixedPoint | Float, y: int, zero_point: int, target: StoredOperand
) -> int:
    """Add the step from y to y + z_out, which may wrap."""
    wraps = sum_rule(stage, target) is Sum.WRAPS
    total = wrap_int32(y + zero_point) if wraps else y + zero_point
    exact, kind = Fraction(y + zero_point), "i32" if wraps else INTEGER
    return working.integer(StepKind.ADD_ZERO_POINT, "t", "y + z_out", total, kind, exact=exact)


def clamp(working: Working, symbol: str, total: int | float, lowest: int, highest: int) -> Stored:
    """Add the last step of a requantization, and return what is stored."""
    working.know(lo=str(lowest), hi=str(highest))
    saturated: Saturation | None = beyond(total, lowest, highest)
    q = int(min(max(total, lowest), highest))
    return Stored(working.integer(StepKind.CLAMP, "q_out", f"clamp({symbol}, lo, hi)", q), saturated)


_OF_F32 = (Factor.F64_OF_F32, Factor.F64_OF_F32_PRODUCT)
_KINDS = {Factor.F64: F64, Factor.F16: FLOATS["f16"], Factor.BF16: FLOATS["bf16"]}


@dataclass(frozen=True, slots=True)
class _ByScheme(Explainer):
    """By multipliers and shifts. `derived`: from the scales of both sides."""

    scaling: ScalingPlan
    derived: bool

    def element(self, index: int, source: Array) -> ElementExplanation:
        (q,) = numbers(source[index : index + 1], self.plan.input_type)
        return self._explained(int(q), index)

    def formula(self) -> tuple[str, ...]:
        source = self.scaling.sides.source
        ordinary = max(source.lowest, min(1, source.highest))
        return formulas(self._explained(ordinary, 0)) if self.plan.elements else ()

    def _explained(self, q: int, index: int) -> ElementExplanation:
        plan = self.scaling
        shape, sides, scheme = static_shape(plan.input_type), plan.sides, plan.scheme
        block = parameter_index(shape, plan.granularity.blocks, index)
        zeros = ZeroPoints(int(sides.zeros_in[block]), int(sides.zeros_out[block]))
        multiplier = plan.multipliers[block if len(plan.multipliers) > 1 else 0]
        working = Working(q=str(q), z_in=str(zeros.input), z_out=str(zeros.output))
        factor = self._factor(working, block) if self.derived else float(scheme.represented(multiplier))
        self._multiplier(working, multiplier)
        if not isinstance(scheme.stage, FixedPoint):
            stored = scale_by_factor(working, scheme, scheme.stage, multiplier, factor, q, zeros, sides.target)
        else:
            y = multiply(working, scheme, scheme.stage, multiplier, q - zeros.input)
            total = _with_zero_point(working, scheme.stage, y, zeros.output, sides.target)
            stored = clamp(working, "t", total, sides.target.minimum, sides.target.maximum)
        return ElementExplanation(str(q), block, tuple(working.steps), stored.value, stored.saturated)

    def _factor(self, working: Working, block: int) -> float:
        """Add the steps from the scales of an element to its factor, and return that."""
        plan, factor = self.scaling, self.scaling.scheme.factor
        stated, scales = [], []
        kind = _KINDS.get(factor, F32)
        for side, operand, indices in zip(
            ("in", "out"),
            (plan.sides.source, plan.sides.target),
            plan.granularity.indices[:2],
            strict=True,
        ):
            assert isinstance(operand, QuantizedOperand)
            scale = operand.scales[int(indices[block])]
            stated.append(scale)
            working.know(**{f"scale_{side}": float_text(scale, F64)})
            rounded = Precision((kind,)).of(scale)
            scales.append(working.float(StepKind.SCALE, f"s_{side}", f"{kind.name}(scale_{side})", rounded, kind))
        result = F64 if factor in (*_OF_F32, Factor.F64) else kind
        ratio = working.float(StepKind.FACTOR, "d", "s_in / s_out", precision(result).divide(*scales), result)
        if ratio != factor.of(stated[0], None, stated[1]):
            raise ContradictionError(f"block {block}: the factor is not {ratio}")
        return ratio

    def _multiplier(self, working: Working, multiplier: Multiplier) -> None:
        """Add the multiplier and the shift, and the number that they stand for where it is not a factor itself."""
        scheme = self.scaling.scheme
        working.integer(StepKind.MULTIPLIER, "m", "multiplier(d)" if self.derived else "given", multiplier.multiplier)
        working.integer(StepKind.SHIFT, "shift", "shift(d)" if self.derived else "given", multiplier.shift)
        if not isinstance(scheme.stage, FixedPoint):
            return
        if scheme.reduced is not None:
            working.know(m16=str(scheme.stage.prepare(multiplier).multiplier))
        exact = scheme.represented(multiplier)
        # What follows says what m16 is.
        formula, _, _ = scheme.convention.partition(",")
        working.float(StepKind.FACTOR, "f", formula, Precision((F64,)).round(exact), F64)


@dataclass(frozen=True, slots=True)
class _ThroughReal(Explainer):
    """Dequantized, and quantized again."""

    dequantize: DequantizeExplainer
    quantize: QuantizeExplainer

    def element(self, index: int, source: Array) -> ElementExplanation:
        (q,) = numbers(source[index : index + 1], self.plan.input_type)
        return self._explained(int(q), index)

    def formula(self) -> tuple[str, ...]:
        operand = self.dequantize.operand
        ordinary = max(operand.lowest, min(1, operand.highest))
        return formulas(self._explained(ordinary, 0)) if self.plan.elements else ()

    def _explained(self, q: int, index: int) -> ElementExplanation:
        working = Working()
        working.names = {"s": "s_in", "z": "z_in", "scale": "scale_in", "y": "x"}
        real = self.dequantize.explained(working, q, index)
        working.names = {"s": "s_out", "z": "z_out", "scale": "scale_out", "q": "q_out"}
        assert isinstance(real.result, float)
        explained = self.quantize.explained(working, real.result, index)
        return ElementExplanation(str(q), real.parameter, explained.steps, explained.result, explained.saturated)


def requantize_explainer(
    input_type: TensorType,
    output_type: Type,
    profile: str = "litert",
    multipliers: Sequence[Multiplier] | None = None,
    **options: Any,
) -> Explainer:
    """Return the explanation of `plan_requantize`, whose arguments these are. Raise what that raises."""
    plan = plan_requantize(input_type, output_type, profile, multipliers, **options)
    if isinstance(plan, ScalingPlan):
        return plan_explainer(plan) if multipliers is not None else _ByScheme(plan, plan, derived=True)
    return plan_explainer(plan)


def scaling_explainer(plan: ScalingPlan) -> Explainer:
    """Return the explanation of a plan with multipliers of the caller."""
    return _ByScheme(plan, plan, derived=False)


def plan_explainer(plan: Plan) -> Explainer:
    """Return the explanation of a plan that is made: with its multipliers as they are, or by way of real numbers.

    Raise UnsupportedError for a plan of another kind, and what `dequantize_explainer` and `quantize_explainer` raise.
    """
    if isinstance(plan, ScalingPlan):
        return scaling_explainer(plan)
    if not isinstance(plan, ThroughRealPlan):
        raise UnsupportedError("only requantizations are explained so")
    dequantize = dequantize_explainer(plan.input_type, None, plan.profile, more_storages=("i32",))
    quantize = quantize_explainer(dequantize.plan.output_type, plan.output_type, plan.profile)
    assert isinstance(dequantize, DequantizeExplainer)
    assert isinstance(quantize, QuantizeExplainer)
    return _ThroughReal(plan, dequantize, quantize)
