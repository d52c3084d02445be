"""Dequantization by the general kernel: every rule, every width, every expressed type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from requant.kernels.convert.dequantize.general import DEQUANTIZE_ANY
from requant.kernels.scalar.rounding import Precision
from requant.mlir.types import TensorType
from requant.plan.lanes import LANES, narrowed, rounded_scales, step_precision
from requant.plan.operands import QuantizedOperand, float_element
from requant.plan.plan import Array, Plan, dequantizing, pieces
from requant.profiles import OperationRule
from requant.profiles.rule import Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneralPlan(Plan):
    """Plan of `requant.kernels.convert.dequantize.general`."""

    tallies: ClassVar[bool] = False

    layout: tuple[int, int, int, int]
    scales: Array
    zero_points: Array
    difference: int
    steps: Precision
    result: Precision

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step. Nothing saturates, and integers have no NaN: `counts` stays as it is."""
        element = float_element(self.output_type, "output")
        run = DEQUANTIZE_ANY[LANES[element.name]]
        for piece in pieces(source.size):
            lanes = np.empty(source[piece].size, LANES[element.name])
            run(
                source[piece].astype(np.int64),
                lanes,
                start + piece.start,
                *self.layout,
                self.scales,
                self.zero_points,
                self.difference,
                int(self.steps),
                int(self.result),
            )
            target[piece] = narrowed(lanes, element)


def plan_general(profile: str, rule: OperationRule, operand: QuantizedOperand, target: TensorType) -> GeneralPlan:
    """Plan any conversion from integers."""
    lanes = LANES[operand.expressed.name]
    channels = operand.channels.as_runs()
    return GeneralPlan(
        **dequantizing(profile, rule, operand, target),
        layout=channels.scalars,
        scales=channels.lay_out(rounded_scales(operand.scales, operand.expressed, rule), lanes),
        zero_points=channels.lay_out(operand.zero_points, "<i8"),
        difference=rule.difference.code,
        steps=step_precision(rule.steps, operand.expressed.name),
        result=step_precision(Steps.EXPRESSED, operand.expressed.name),
    )
