"""Quantization to small floats: scaled in f32, then encoded by the profile's authority. There is no zero point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.elements import FloatElement
from core.float_encoding import RULES, EncodingRule, encode
from core.kernels._jit import Kernel
from core.kernels.scale import DIVIDE, MULTIPLY
from core.lanes import narrow, rounded_scales, widen
from core.mlir.types import TensorType
from core.operands import QuantizedOperand, float_element
from core.plan import Array, Plan, pieces
from core.profiles import OperationRule
from core.profiles.rule import Quotient, Steps
from core.small_floats import small_float


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFloatPlan(Plan):
    """Plan of `core.kernels.scale` and `core.float_encoding`. `stepped` is what the quotient is rounded to first."""

    storage: str
    kernel: Kernel
    layout: tuple[int, int, int, int]
    factors: Array
    encoding: EncodingRule
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
            target[piece] = encode(scaled, self.storage, self.encoding)
            self._count(scaled, counts)

    def _count(self, scaled: Array, counts: Array) -> None:
        """An element is saturated when what it is rounded to is beyond the largest finite value."""
        format_ = small_float(self.storage)
        last_place = format_.largest - format_.value(format_.largest_code - 1)
        # A tie beside an even code goes back to it.
        first = np.float32(format_.largest + last_place / 2)
        if format_.largest_code % 2 == 0:
            first = np.nextafter(first, np.float32(np.inf))
        counts[0] += np.count_nonzero(scaled <= -first)
        counts[1] += np.count_nonzero(scaled >= first)
        counts[2] += np.count_nonzero(np.isnan(scaled))


def as_element(lanes: Array, element: FloatElement) -> Array:
    """Return f32 lanes rounded to an array of f16 or bf16."""
    narrowed = np.empty(lanes.size, element.tensor_dtype)
    narrow(lanes, element, narrowed)
    return narrowed


def plan_small_float(
    profile: str, rule: OperationRule, input_type: TensorType, operand: QuantizedOperand
) -> SmallFloatPlan:
    """Plan x -> cast(x / s). Raise UnsupportedError for a zero point other than 0."""
    operand.check_no_zero_points("output")
    assert rule.float_storage is not None
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
        storage=operand.storage,
        kernel=DIVIDE if divide else MULTIPLY,
        layout=channels.scalars,
        factors=channels.lay_out(scales if divide else np.float32(1.0) / scales, "<f4"),
        encoding=RULES[rule.float_storage],
        stepped=operand.expressed if narrow_steps else None,
        adds_zero=rule.float_zero_point,
    )
