"""Dequantize: a tensor of quantized integers to floats. The formula is the profile's (`core.profiles`)."""

from __future__ import annotations

from dataclasses import dataclass

from core.kernels._jit import Kernel
from core.kernels.dequantize import DEQUANTIZE
from core.mlir.types import TensorType, Type
from core.operands import bind, float_dtype, quantized_operand, static_shape
from core.plan import Array, Plan
from core.profiles import Operation, profile_named


@dataclass(frozen=True, slots=True, kw_only=True)
class DequantizePlan(Plan):
    """Plan of `core.kernels.dequantize`."""

    kernel: Kernel
    run_length: int
    scales: Array
    zero_points: Array

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step. Nothing saturates, and integers have no NaN: `counts` stays as it is."""
        self.kernel(source, target, start, self.run_length, self.scales, self.zero_points)


def plan_dequantize(
    input_type: TensorType, output_type: Type | None = None, profile: str = "stablehlo"
) -> DequantizePlan:
    """Plan q -> x. `input_type`: a static tensor of a uniform type. `output_type`: its expressed type, if given at all.

    Raise UnknownNameError, UnsupportedError or TypeFitError, as `core.operands` says.
    """
    rule = profile_named(profile).rule(Operation.DEQUANTIZE)
    shape = static_shape(input_type)
    operand = quantized_operand(input_type, "input", profile)
    target = bind(operand.expressed if output_type is None else output_type, shape)
    output_dtype = float_dtype(target, "output")
    operand.check_expressed(target)
    if operand.storage_name in rule.symmetric:
        operand.check_symmetric("input", f"profile {profile} dequantizes {operand.storage_name} only with zero point 0")
    channels = operand.channels
    return DequantizePlan(
        profile=profile,
        rounding=rule.rounding,
        input_type=input_type,
        output_type=target,
        input_dtype=operand.dtype,
        output_dtype=output_dtype,
        elements=operand.elements,
        kernel=DEQUANTIZE[channels.cycle, rule.arithmetic == "f64" and operand.dtype.itemsize == 4],
        run_length=channels.run,
        scales=channels.lay_out(operand.scales, "<f4"),
        zero_points=channels.lay_out(operand.zero_points, "<i4"),
    )
