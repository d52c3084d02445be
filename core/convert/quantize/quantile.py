"""Quantization to the codes of a table of values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.convert.quantiles import NearestCodes, nearest_codes, table_values, zero_points_in
from core.errors import about
from core.kernels.convert.quantile import QUANTIZE_QUANTILE
from core.kernels.scalar.rounding import Precision
from core.mlir.types import QuantileType, TensorType
from core.plan.lanes import LANES, rounded_scales, step_precision, widen
from core.plan.operands import QuantizedOperand, float_element
from core.plan.plan import Array, Plan, pieces, quantizing
from core.profiles import OperationRule
from core.profiles.rule import Missing


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantilePlan(Plan):
    """Plan of `core.kernels.convert.quantile`."""

    layout: tuple[int, int, int, int]
    scales: Array
    zero_points: Array
    precision: Precision
    nearest: NearestCodes
    missing: Missing
    minimum: int

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step."""
        element = float_element(self.input_type, "input")
        run = QUANTIZE_QUANTILE[LANES[element.name]]
        for piece in pieces(source.size):
            lanes = widen(source[piece], element)
            codes = np.empty(lanes.size, np.int64)
            before = counts[2]
            run(
                lanes,
                codes,
                start + piece.start,
                *self.layout,
                self.scales,
                self.zero_points,
                int(self.precision),
                self.nearest.thresholds,
                self.nearest.codes,
                self.nearest.smallest,
                self.nearest.largest,
                self.minimum,
                self.missing is Missing.ZERO_POINT,
                counts,
            )
            if self.missing is Missing.ERROR and counts[2] > before and counts[3] < 0:
                counts[3] = start + piece.start + int(np.argmax(np.isnan(lanes)))
            target[piece] = codes

    def explain_undefined(self, counts: Array) -> str:
        """See Plan.explain_undefined."""
        return "this element is NaN"


def plan_quantile(
    profile: str, rule: OperationRule, quantile: QuantileType, input_type: TensorType, operand: QuantizedOperand
) -> QuantilePlan:
    """Plan the nearest code of x / s + z. Raise UnsupportedError where the table or a zero point leaves its types."""
    with about("output"):
        values = table_values(quantile, operand.expressed)
        zero_points = zero_points_in(operand.expressed, operand.zero_points)
    channels, lanes = operand.channels.as_runs(), LANES[operand.expressed.name]
    return QuantilePlan(
        **quantizing(profile, rule, input_type, operand),
        layout=channels.scalars,
        scales=channels.lay_out(rounded_scales(operand.scales, operand.expressed, rule), lanes),
        zero_points=channels.lay_out(zero_points, lanes),
        precision=step_precision(rule.steps, operand.expressed.name),
        nearest=nearest_codes(values, operand.lowest, operand.minimum, operand.maximum),
        missing=rule.missing,
        minimum=operand.minimum,
    )
