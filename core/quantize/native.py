"""Quantization by the specialised kernels: division in f32, and integers of 8, 16 or 32 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.kernels._jit import Kernel
from core.kernels.quantize import QUANTIZE, QuantizeRule
from core.lanes import LANES, rounded_scales, widen
from core.mlir.types import TensorType
from core.operands import QuantizedOperand, float_element
from core.plan import Array, Plan, pieces
from core.profiles import OperationRule, Rounding, ZeroPoint
from core.profiles.rule import Missing, Overflow, Quotient, Steps

_RULES: Mapping[tuple[Rounding, ZeroPoint, Overflow, Missing], QuantizeRule] = {
    (
        Rounding.NEAREST_EVEN,
        ZeroPoint.BEFORE_ROUNDING,
        Overflow.SATURATE,
        Missing.ZERO,
    ): QuantizeRule.EVEN_BEFORE,
    (
        Rounding.NEAREST_EVEN,
        ZeroPoint.AFTER_ROUNDING,
        Overflow.SATURATE,
        Missing.LOWEST,
    ): QuantizeRule.EVEN_AFTER,
    (
        Rounding.NEAREST_AWAY,
        ZeroPoint.AFTER_ROUNDING,
        Overflow.INDEFINITE,
        Missing.INDEFINITE,
    ): QuantizeRule.AWAY_INDEFINITE,
}


def _key(rule: OperationRule) -> tuple[Rounding, ZeroPoint, Overflow, Missing]:
    return rule.rounding, rule.zero_point, rule.overflow, rule.missing


def is_native(rule: OperationRule, operand: QuantizedOperand) -> bool:
    """Return whether a specialised kernel computes this rule for this type.

    Between 17 and 31 bits the bounds are exact neither in f32 nor as those of a machine type; unsigned 32 bits do not
    fit the kernels' int32.
    """
    in_f32 = LANES[operand.expressed.name] == "<f4" and (rule.steps is Steps.F32 or operand.expressed.name == "f32")
    fits = operand.dtype.itemsize < 4 or operand.storage == "i32"
    return in_f32 and fits and rule.quotient is Quotient.DIVISION and _key(rule) in _RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePlan(Plan):
    """Plan of `core.kernels.quantize`."""

    kernel: Kernel
    layout: tuple[int, int, int, int]
    scales: Array
    zero_points: Array
    minimum: int
    maximum: int

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step."""
        element = float_element(self.input_type, "input")
        if element.name == "f32":
            self._step_f32(source, target, start, counts)
            return
        for piece in pieces(source.size):
            self._step_f32(widen(source[piece], element), target[piece], start + piece.start, counts)

    def _step_f32(self, source: Array, target: Array, start: int, counts: Array) -> None:
        self.kernel(
            source, target, start, *self.layout, self.scales, self.zero_points, self.minimum, self.maximum, counts
        )


def plan_native(profile: str, rule: OperationRule, input_type: TensorType, operand: QuantizedOperand) -> NativePlan:
    """Plan a conversion for which `is_native` holds."""
    channels = operand.channels
    return NativePlan(
        profile=profile,
        rounding=rule.rounding,
        input_type=input_type,
        output_type=operand.tensor,
        input_dtype=float_element(input_type, "input").tensor_dtype,
        output_dtype=operand.dtype,
        elements=operand.elements,
        kernel=QUANTIZE[_RULES[_key(rule)], channels.cycle, operand.dtype.itemsize == 4],
        layout=channels.scalars,
        scales=channels.lay_out(rounded_scales(operand.scales, operand.expressed, rule.scales), "<f4"),
        zero_points=channels.lay_out(operand.zero_points, "<i4"),
        minimum=operand.minimum,
        maximum=operand.maximum,
    )
