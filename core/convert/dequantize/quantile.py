"""Dequantization of the codes of a table of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from core.convert.quantiles import table_values, zero_points_in
from core.errors import about
from core.kernels.convert.quantile import DEQUANTIZE_QUANTILE
from core.kernels.scalar.rounding import Precision
from core.mlir.types import QuantileType, TensorType
from core.plan.lanes import LANES, narrow, rounded_scales, step_precision
from core.plan.operands import QuantizedOperand, float_element
from core.plan.plan import Array, Plan, dequantizing, pieces
from core.profiles import OperationRule


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantilePlan(Plan):
    """Plan of `core.kernels.convert.quantile`."""

    tallies: ClassVar[bool] = False

    layout: tuple[int, int, int, int]
    scales: Array
    zero_points: Array
    precision: Precision
    values: Array
    lowest: int

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step. Nothing saturates, and tables have no NaN: `counts` stays as it is."""
        element = float_element(self.output_type, "output")
        run = DEQUANTIZE_QUANTILE[LANES[element.name]]
        for piece in pieces(source.size):
            lanes = np.empty(source[piece].size, LANES[element.name])
            run(
                source[piece].astype(np.int64),
                lanes,
                start + piece.start,
                *self.layout,
                self.scales,
                self.zero_points,
                int(self.precision),
                self.values,
                self.lowest,
            )
            narrow(lanes, element, target[piece])


def plan_quantile(
    profile: str, rule: OperationRule, quantile: QuantileType, operand: QuantizedOperand, target: TensorType
) -> QuantilePlan:
    """Plan E(E(T(q) - E(z)) * E(s)). Raise UnsupportedError where the table or a zero point leaves its types."""
    with about("input"):
        values = table_values(quantile, operand.expressed)
        zero_points = zero_points_in(operand.expressed, operand.zero_points)
    channels, lanes = operand.channels.as_runs(), LANES[operand.expressed.name]
    return QuantilePlan(
        **dequantizing(profile, rule, operand, target),
        layout=channels.scalars,
        scales=channels.lay_out(rounded_scales(operand.scales, operand.expressed, rule), lanes),
        zero_points=channels.lay_out(zero_points, lanes),
        precision=step_precision(rule.steps, operand.expressed.name),
        values=values,
        lowest=operand.lowest,
    )
