"""Quantization to small floats: scaled in f32, then encoded by the profile's authority. There is no zero point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.convert.float_encoding import Encoder
from requant.formats.rules import Quotient
from requant.mlir.types import TensorType
from requant.plan.lanes import rounded_scales, step_precision
from requant.plan.operands import QuantizedOperand
from requant.plan.plan import Array, Plan, quantizing
from requant.profiles import OperationRule


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFloatPlan(Plan):
    """Plan of `requant.convert.float_encoding`."""

    encoder: Encoder
    layout: Array
    factors: Array

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        self.encoder.encode_scaled(source, target, start, counts, self.layout, self.factors)

    def explain_undefined(self, counts: Array) -> str:
        return "this element is NaN"


def plan_small_float(
    profile: str, rule: OperationRule, encoder: Encoder, input_type: TensorType, operand: QuantizedOperand
) -> SmallFloatPlan:
    """Plan x -> cast(x / s)."""
    scales = rounded_scales(operand.scales, operand.expressed, rule)
    divides = rule.quotient is Quotient.DIVISION
    with np.errstate(over="ignore"):
        factors = scales if divides else np.float32(1.0) / scales
    channels, expressed = operand.channels, operand.expressed.name
    return SmallFloatPlan(
        **quantizing(profile, rule, input_type, operand),
        encoder=encoder.scaling(expressed, divides, step_precision(rule.steps, expressed), rule.float_zero_point),
        layout=channels.layout,
        factors=channels.lay_out(factors, "<f4"),
    )
