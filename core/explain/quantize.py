"""Quantize, explained: which rule applies to an element, and the number that it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.convert.quantize import NanPolicy, bound_output, plan_quantize, quantize_rule
from core.convert.quantize.split_bytes import Runs
from core.explain.explainer import Array, Explainer, numbers
from core.explain.explanation import ElementExplanation
from core.explain.number_text import float_text
from core.explain.parameter_index import parameter_index
from core.explain.quantize_integer import IntegerQuantization
from core.explain.scales import Scales
from core.explain.working import Working
from core.mlir.types import TensorType, Type
from core.plan.operands import float_element, static_shape
from core.plan.plan import Plan
from core.profiles import Rounding


@dataclass(frozen=True, slots=True)
class QuantizeExplainer(Explainer):
    """To integers. Elements of `alone` have another rule."""

    integers: IntegerQuantization
    alone: IntegerQuantization
    places_alone: frozenset[int]

    def element(self, index: int, source: Array) -> ElementExplanation:
        """See Explainer.element."""
        (x,) = numbers(source[index : index + 1], self.plan.input_type)
        return self._explained(float(x), index)

    def formula(self) -> tuple[str, ...]:
        """See Explainer.formula."""
        return tuple(f"{step.symbol} = {step.formula}" for step in self._explained(0.0, 0).steps)

    def _explained(self, x: float, index: int) -> ElementExplanation:
        operand = self.integers.operand
        parameter = parameter_index(static_shape(operand.tensor), operand.blocks, index)
        text = float_text(x, float_element(self.plan.input_type, "input"))
        working = Working(x=text)
        rule = self.alone if index in self.places_alone else self.integers
        stored = rule.explain(working, x, parameter, index)
        return ElementExplanation(text, parameter, tuple(working.steps), stored.value, stored.saturated)


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
    plan: Plan = plan_quantize(input_type, output_type, profile, seed=seed, **overrides)
    bound = bound_output(input_type, output_type)
    found = quantize_rule(input_type, bound, profile, **overrides)
    operand = found.operand
    scales = Scales.of(found.rule, operand)
    integers = IntegerQuantization(found.rule, scales, seed)
    if found.alone is None:
        return QuantizeExplainer(plan, integers, integers, frozenset())
    places = frozenset(Runs.of(operand).alone(0, operand.elements).tolist())
    return QuantizeExplainer(plan, integers, IntegerQuantization(found.alone, scales, seed), places)
