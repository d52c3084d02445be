"""Dequantization of small floats: decoded, then multiplied in f32. There is no zero point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.kernels.scale import MULTIPLY
from core.lanes import narrow, rounded_scales
from core.mlir.types import TensorType
from core.operands import QuantizedOperand, float_element
from core.plan import Array, Plan, pieces
from core.profiles import OperationRule
from core.small_floats import decode


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFloatPlan(Plan):
    """Plan of `core.small_floats` and `core.kernels.scale`."""

    storage: str
    layout: tuple[int, int, int, int]
    scales: Array

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step. NaN codes are counted."""
        element = float_element(self.output_type, "output")
        for piece in pieces(source.size):
            decoded = decode(source[piece], self.storage)
            lanes = np.empty(decoded.size, np.float32)
            MULTIPLY(decoded, lanes, start + piece.start, *self.layout, self.scales)
            narrow(lanes, element, target[piece])
            counts[2] += np.count_nonzero(np.isnan(decoded))


def plan_small_float(
    profile: str, rule: OperationRule, operand: QuantizedOperand, target: TensorType
) -> SmallFloatPlan:
    """Plan E(f32(decode(q) * s))."""
    channels = operand.channels.as_runs()
    return SmallFloatPlan(
        profile=profile,
        rounding=rule.rounding,
        input_type=operand.tensor,
        output_type=target,
        input_dtype=operand.dtype,
        output_dtype=float_element(target, "output").tensor_dtype,
        elements=operand.elements,
        storage=operand.storage,
        layout=channels.scalars,
        scales=channels.lay_out(rounded_scales(operand.scales, operand.expressed, rule.scales), "<f4"),
    )
