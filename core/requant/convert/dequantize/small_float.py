"""Dequantization of small floats: decoded, then multiplied in f32. Their only zero point, 0, may be added."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.convert.small_floats import Decoder, decoder
from requant.mlir.types import TensorType
from requant.plan.lanes import rounded_scales
from requant.plan.operands import QuantizedOperand, float_element
from requant.plan.plan import Array, Plan, dequantizing
from requant.profiles import OperationRule


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFloatPlan(Plan):
    """Plan of `requant.convert.small_floats`."""

    decoder: Decoder
    layout: Array
    scales: Array
    adds_zero: bool

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step. NaN codes are counted."""
        self.decoder.decode(source, target, counts, start, self.layout, self.scales)
        if self.adds_zero:
            np.add(target, 0, out=target)


def plan_small_float(
    profile: str, rule: OperationRule, operand: QuantizedOperand, target: TensorType
) -> SmallFloatPlan:
    """Plan E(f32(decode(q) * s)), or that plus 0."""
    channels = operand.channels
    return SmallFloatPlan(
        **dequantizing(profile, rule, operand, target),
        decoder=decoder(operand.storage, float_element(target, "output").name),
        layout=channels.layout,
        scales=channels.lay_out(rounded_scales(operand.scales, operand.expressed, rule), "<f4"),
        adds_zero=rule.float_zero_point,
    )
