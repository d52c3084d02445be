"""Quantize: a tensor of floats to integers. The formula is the profile's (`core.profiles`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.kernels._jit import Kernel
from core.kernels.quantize import QUANTIZE, QuantizeRule
from core.mlir.types import TensorType, Type
from core.operands import bind, float_dtype, quantized_operand, static_shape
from core.plan import Array, Plan
from core.profiles import Operation, Rounding, ZeroPoint, profile_named

_KERNEL_RULES: Mapping[tuple[Rounding, ZeroPoint], QuantizeRule] = {
    (Rounding.NEAREST_EVEN, ZeroPoint.BEFORE_ROUNDING): QuantizeRule.EVEN_BEFORE,
    (Rounding.NEAREST_EVEN, ZeroPoint.AFTER_ROUNDING): QuantizeRule.EVEN_AFTER,
    (Rounding.NEAREST_AWAY, ZeroPoint.AFTER_ROUNDING): QuantizeRule.AWAY_INDEFINITE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizePlan(Plan):
    """Plan of `core.kernels.quantize`."""

    kernel: Kernel
    run_length: int
    scales: Array
    zero_points: Array
    minimum: int
    maximum: int

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step."""
        self.kernel(
            source, target, start, self.run_length, self.scales, self.zero_points, self.minimum, self.maximum, counts
        )


def plan_quantize(input_type: TensorType, output_type: Type, profile: str = "stablehlo") -> QuantizePlan:
    """Plan x -> q. `input_type`: a static tensor of f32. `output_type`: a uniform type, bare or of the same shape.

    Raise UnknownNameError, UnsupportedError or TypeFitError, as `core.operands` says.
    """
    rule = profile_named(profile).rule(Operation.QUANTIZE)
    shape = static_shape(input_type)
    input_dtype = float_dtype(input_type, "input")
    operand = quantized_operand(bind(output_type, shape), "output", profile)
    operand.check_expressed(input_type)
    kernel_rule = _KERNEL_RULES[rule.rounding, rule.zero_point]
    channels = operand.channels
    return QuantizePlan(
        profile=profile,
        rounding=rule.rounding,
        input_type=input_type,
        output_type=operand.tensor,
        input_dtype=input_dtype,
        output_dtype=operand.dtype,
        elements=operand.elements,
        kernel=QUANTIZE[kernel_rule, channels.cycle, operand.dtype.itemsize == 4],
        run_length=channels.run,
        scales=channels.lay_out(operand.scales, "<f4"),
        zero_points=channels.lay_out(operand.zero_points, "<i4"),
        minimum=operand.minimum,
        maximum=operand.maximum,
    )
