"""Quantization by the general kernel: every rule, every width, every expressed type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from core.channels import Channels
from core.elements import FLOATS
from core.kernels import quantize_any as kernel
from core.kernels.rounding import Rounding as KernelRounding
from core.lanes import LANES, rounded, rounded_scales, step_precision, widen
from core.mlir.types import TensorType
from core.operands import QuantizedOperand, float_element
from core.plan import Array, Plan, pieces
from core.profiles import OperationRule, Rounding, ZeroPoint
from core.profiles.rule import Missing, Overflow, Quotient, Steps

_QUOTIENTS: Mapping[Quotient, kernel.Quotient] = {
    Quotient.DIVISION: kernel.Quotient.DIVISION,
    Quotient.RECIPROCAL: kernel.Quotient.RECIPROCAL,
    Quotient.RECIPROCAL_OF_F64: kernel.Quotient.RECIPROCAL,
    Quotient.FUSED: kernel.Quotient.FUSED,
}
ROUNDINGS: Mapping[Rounding, KernelRounding] = {
    Rounding.NEAREST_EVEN: KernelRounding.HALF_EVEN,
    Rounding.NEAREST_AWAY: KernelRounding.HALF_AWAY,
    Rounding.NEAREST_UP: KernelRounding.HALF_UP,
    Rounding.NEAREST_DOWN: KernelRounding.HALF_DOWN,
    Rounding.TOWARD_ZERO: KernelRounding.TOWARD_ZERO,
    Rounding.FLOOR: KernelRounding.FLOOR,
    Rounding.CEILING: KernelRounding.CEILING,
    Rounding.STOCHASTIC: KernelRounding.STOCHASTIC,
}
_OVERFLOWS: Mapping[Overflow, kernel.Overflow] = {
    Overflow.SATURATE: kernel.Overflow.SATURATE,
    Overflow.INDEFINITE: kernel.Overflow.INDEFINITE,
    Overflow.UNDEFINED: kernel.Overflow.UNDEFINED,
    Overflow.FLOAT_CLAMP: kernel.Overflow.FLOAT_CLAMP,
}
_MISSING: Mapping[Missing, kernel.Missing] = {
    Missing.LOWEST: kernel.Missing.STORED,
    Missing.HIGHEST: kernel.Missing.STORED,
    Missing.ZERO: kernel.Missing.STORED,
    Missing.ZERO_POINT: kernel.Missing.ZERO_POINT,
    Missing.INDEFINITE: kernel.Missing.INDEFINITE,
    Missing.ERROR: kernel.Missing.UNDEFINED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneralPlan(Plan):
    """Plan of `core.kernels.quantize_any`."""

    layout: tuple[int, int, int, int]
    scales: Array
    reciprocals: Array
    real_zero_points: Array
    zero_points: Array
    rules: Array
    bounds: Array
    real_bounds: Array

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step."""
        element = float_element(self.input_type, "input")
        run = kernel.QUANTIZE_ANY[LANES[element.name]]
        for piece in pieces(source.size):
            lanes = widen(source[piece], element)
            stored = np.empty(lanes.size, np.int64)
            run(
                lanes,
                stored,
                start + piece.start,
                *self.layout,
                self.scales,
                self.reciprocals,
                self.real_zero_points,
                self.zero_points,
                self.rules,
                self.bounds,
                self.real_bounds,
                counts,
            )
            target[piece] = stored

    def explain_undefined(self, counts: Array) -> str:
        """See Plan.explain_undefined."""
        lowest, highest = self.bounds[2:4].tolist()
        return (
            f"profile {self.profile} gives no result for this element: it is NaN, or what it is rounded to is not "
            f"between {lowest} and {highest}"
        )


def _reciprocals(rule: OperationRule, operand: QuantizedOperand, scales: Array) -> Array:
    """1 / s in the lanes; of the type's own f64 scale, where the rule says so."""
    with np.errstate(over="ignore", divide="ignore"):
        if rule.quotient is Quotient.RECIPROCAL_OF_F64:
            return (1.0 / np.array(operand.scales)).astype(scales.dtype)
        return (np.ones(1, scales.dtype) / scales).astype(scales.dtype)


def plan_general(
    profile: str, rule: OperationRule, input_type: TensorType, operand: QuantizedOperand, seed: int
) -> GeneralPlan:
    """Plan any conversion to integers."""
    lanes = LANES[operand.expressed.name]
    stepped = operand.expressed if rule.steps is Steps.EXPRESSED else FLOATS["f32"]
    scales = rounded_scales(operand.scales, operand.expressed, rule.scales)
    stored_nan = {Missing.LOWEST: operand.minimum, Missing.HIGHEST: operand.maximum}.get(rule.missing, 0)
    rules = {
        kernel.Field.QUOTIENT: _QUOTIENTS[rule.quotient],
        kernel.Field.PRECISION: step_precision(rule.steps, operand.expressed.name),
        kernel.Field.BEFORE: rule.zero_point is ZeroPoint.BEFORE_ROUNDING,
        kernel.Field.ROUNDING: ROUNDINGS[rule.rounding],
        kernel.Field.OVERFLOW: _OVERFLOWS[rule.overflow],
        kernel.Field.MISSING: _MISSING[rule.missing],
        kernel.Field.SEED: seed,
    }
    channels: Channels = operand.channels.as_runs()
    bounds = np.array([operand.minimum, operand.maximum], np.float64)
    return GeneralPlan(
        profile=profile,
        rounding=rule.rounding,
        input_type=input_type,
        output_type=operand.tensor,
        input_dtype=float_element(input_type, "input").tensor_dtype,
        output_dtype=operand.dtype,
        elements=operand.elements,
        layout=channels.scalars,
        scales=channels.lay_out(scales, lanes),
        reciprocals=channels.lay_out(_reciprocals(rule, operand, scales), lanes),
        real_zero_points=channels.lay_out(rounded(np.array(operand.zero_points, np.float64), stepped), lanes),
        zero_points=channels.lay_out(operand.zero_points, "<i8"),
        rules=np.array([int(rules[field]) for field in kernel.Field], np.int64),
        bounds=np.array([operand.minimum, operand.maximum, operand.lowest, operand.highest, stored_nan], np.int64),
        real_bounds=rounded(bounds, stepped).astype(lanes),
    )
