"""Explains requantize: the factor, the multiplier and shift that represent it, and what an element becomes by them.

Where a profile has no scheme, an element is dequantized and quantized again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from requant.convert.explain.dequantize import DequantizeExplainer, dequantize_explainer
from requant.convert.explain.explainer import Array, ContradictionError, Explainer, formulas, numbers
from requant.convert.explain.explanation import ElementExplanation, StepKind
from requant.convert.explain.fixed_point import multiply
from requant.convert.explain.float_steps import F32, F64, Precision, precision, wrap_int32
from requant.convert.explain.number_text import float_text
from requant.convert.explain.parameter_index import parameter_index
from requant.convert.explain.quantize import QuantizeExplainer, quantize_explainer
from requant.convert.explain.real_factor import ZeroPoints, clamp, scale_by_factor
from requant.convert.explain.working import INTEGER, Working
from requant.convert.requantize import ScalingPlan, plan_requantize
from requant.convert.requantize.fixed_point import sum_rule
from requant.convert.requantize.through_real import ThroughRealPlan
from requant.formats.elements import FLOATS
from requant.mlir.types import TensorType, Type
from requant.plan.operands import QuantizedOperand, static_shape
from requant.schemes import Factor, FixedPoint, Multiplier, Sum

_OF_F32 = (Factor.F64_OF_F32, Factor.F64_OF_F32_PRODUCT)
_KINDS = {Factor.F64: F64, Factor.F16: FLOATS["f16"], Factor.BF16: FLOATS["bf16"]}


@dataclass(frozen=True, slots=True)
class _ByScheme(Explainer):
    """By multipliers and shifts. `derived`: from the scales of both sides."""

    scaling: ScalingPlan
    derived: bool

    def element(self, index: int, source: Array) -> ElementExplanation:
        """See Explainer.element."""
        (q,) = numbers(source[index : index + 1], self.plan.input_type)
        return self._explained(int(q), index)

    def formula(self) -> tuple[str, ...]:
        """See Explainer.formula."""
        source = self.scaling.sides.source
        ordinary = max(source.lowest, min(1, source.highest))
        return formulas(self._explained(ordinary, 0)) if self.plan.elements else ()

    def _explained(self, q: int, index: int) -> ElementExplanation:
        plan = self.scaling
        shape, sides, scheme = static_shape(plan.input_type), plan.sides, plan.scheme
        block = parameter_index(shape, plan.granularity.blocks, index)
        zeros = ZeroPoints(int(sides.zeros_in[block]), int(sides.zeros_out[block]))
        given = plan.multipliers[block if len(plan.multipliers) > 1 else 0]
        working = Working(q=str(q), z_in=str(zeros.input), z_out=str(zeros.output))
        factor = self._factor(working, block) if self.derived else float(scheme.represented(given))
        self._multiplier(working, given)
        if not isinstance(scheme.stage, FixedPoint):
            stored = scale_by_factor(working, scheme, scheme.stage, given, factor, q, zeros, sides.target)
        else:
            y = multiply(working, scheme, scheme.stage, given, q - zeros.input)
            wraps = sum_rule(scheme.stage, sides) is Sum.WRAPS
            total = wrap_int32(y + zeros.output) if wraps else y + zeros.output
            exact = Fraction(y + zeros.output)
            working.integer(StepKind.ADD_ZERO_POINT, "t", "y + z_out", total, "i32" if wraps else INTEGER, exact=exact)
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

    def _multiplier(self, working: Working, given: Multiplier) -> None:
        """Add the multiplier and the shift, and the number that they stand for where it is not a factor itself."""
        scheme = self.scaling.scheme
        working.integer(StepKind.MULTIPLIER, "m", "multiplier(d)" if self.derived else "given", given.multiplier)
        working.integer(StepKind.SHIFT, "shift", "shift(d)" if self.derived else "given", given.shift)
        if not isinstance(scheme.stage, FixedPoint):
            return
        if scheme.reduced is not None:
            working.know(m16=str(scheme.stage.prepare(given).multiplier))
        exact = scheme.represented(given)
        # What follows says what m16 is.
        formula, _, _ = scheme.convention.partition(",")
        working.float(StepKind.FACTOR, "f", formula, Precision((F64,)).round(exact), F64)


@dataclass(frozen=True, slots=True)
class _ThroughReal(Explainer):
    """Dequantized, and quantized again."""

    dequantize: DequantizeExplainer
    quantize: QuantizeExplainer

    def element(self, index: int, source: Array) -> ElementExplanation:
        """See Explainer.element."""
        (q,) = numbers(source[index : index + 1], self.plan.input_type)
        return self._explained(int(q), index)

    def formula(self) -> tuple[str, ...]:
        """See Explainer.formula."""
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
        return scaling_explainer(plan) if multipliers is not None else _ByScheme(plan, plan, derived=True)
    assert isinstance(plan, ThroughRealPlan)
    dequantize = dequantize_explainer(plan.input_type, None, profile, more_storages=("i32",))
    quantize = quantize_explainer(dequantize.plan.output_type, plan.output_type, profile)
    assert isinstance(dequantize, DequantizeExplainer)
    assert isinstance(quantize, QuantizeExplainer)
    return _ThroughReal(plan, dequantize, quantize)


def scaling_explainer(plan: ScalingPlan) -> Explainer:
    """Return the explanation of a plan whose multipliers were given."""
    return _ByScheme(plan, plan, derived=False)
