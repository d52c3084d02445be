"""Requantization of the systems that have none: quantize(dequantize(q)), by the profile's own two rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.plan.operands import QuantizedOperand
from requant.plan.plan import Array, Plan, pieces, requantizing
from requant.plan.table import TablePlan, table_for


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughRealPlan(TablePlan):
    """Two plans, one after the other on each piece."""

    dequantize: Plan
    quantize: Plan

    def compute(self, source: Array, target: Array, start: int, counts: Array) -> None:
        for piece in pieces(source.size):
            real = np.empty(source[piece].size, self.quantize.input_dtype)
            self.dequantize.step(source[piece], real, start + piece.start, self.dequantize.new_counts())
            self.quantize.step(real, target[piece], start + piece.start, counts)

    def explain_undefined(self, counts: Array) -> str:
        return self.quantize.explain_undefined(counts)


def plan_through_real(
    profile: str, source: QuantizedOperand, target: QuantizedOperand, *, constant_scales: bool = True
) -> ThroughRealPlan:
    """Plan q -> x -> q'. Accumulators of 32 bits are taken whether or not the profile dequantizes them otherwise.

    `constant_scales` of the source, as in `plan_dequantize`.
    """
    dequantize = plan_dequantize(source.tensor, None, profile, more_storages=("i32",), constant_scales=constant_scales)
    quantize = plan_quantize(dequantize.output_type, target.tensor, profile)
    return ThroughRealPlan(
        **requantizing(profile, quantize.rounding, source, target),
        dequantize=dequantize,
        quantize=quantize,
        table=table_for(source.dtype, target.dtype, max(len(source.scales), len(target.scales))),
    )
