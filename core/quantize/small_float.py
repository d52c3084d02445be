"""Quantization to small floats: scaled in f32, then encoded by the profile's authority. There is no zero point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.elements import FloatElement
from core.float_encoding import Encoder
from core.kernels._jit import Kernel
from core.kernels.scale import DIVIDE, MULTIPLY
from core.lanes import narrow, rounded_scales, widen
from core.mlir.types import TensorType
from core.operands import QuantizedOperand, float_element
from core.plan import Array, Plan, pieces
from core.profiles import OperationRule
from core.profiles.rule import Quotient, Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFloatPlan(Plan):
    """Plan of `core.kernels.scale` and `core.float_encoding`. `stepped` is what the quotient is rounded to first."""

    kernel: Kernel
    layout: tuple[int, int, int, int]
    factors: Array
    encoder: Encoder
    stepped: FloatElement | None
    adds_zero: bool

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step."""
        element = float_element(self.input_type, "input")
        for piece in pieces(source.size):
            lanes = widen(source[piece], element)
            scaled = np.empty(lanes.size, np.float32)
            self.kernel(lanes, scaled, start + piece.start, *self.layout, self.factors)
            if self.stepped is not None:
                scaled = widen(as_element(scaled, self.stepped), self.stepped)
            if self.adds_zero:
                scaled += np.float32(0.0)
            self.encoder.encode(scaled, target[piece], start + piece.start, counts)

    def explain_undefined(self, counts: Array) -> str:
        """See Plan.explain_undefined."""
        return "this element is NaN"


def as_element(lanes: Array, element: FloatElement) -> Array:
    """Return f32 lanes rounded to an array of f16 or bf16."""
    narrowed = np.empty(lanes.size, element.tensor_dtype)
    narrow(lanes, element, narrowed)
    return narrowed


def plan_small_float(
    profile: str, rule: OperationRule, encoder: Encoder, input_type: TensorType, operand: QuantizedOperand
) -> SmallFloatPlan:
    """Plan x -> cast(x / s)."""
    scales = rounded_scales(operand.scales, operand.expressed, rule.scales)
    divide = rule.quotient is Quotient.DIVISION
    channels = operand.channels.as_runs()
    narrow_steps = rule.steps is Steps.EXPRESSED and operand.expressed.name != "f32"
    return SmallFloatPlan(
        profile=profile,
        rounding=rule.rounding,
        input_type=input_type,
        output_type=operand.tensor,
        input_dtype=float_element(input_type, "input").tensor_dtype,
        output_dtype=operand.dtype,
        elements=operand.elements,
        kernel=DIVIDE if divide else MULTIPLY,
        layout=channels.scalars,
        factors=channels.lay_out(scales if divide else np.float32(1.0) / scales, "<f4"),
        encoder=encoder,
        stepped=operand.expressed if narrow_steps else None,
        adds_zero=rule.float_zero_point,
    )
