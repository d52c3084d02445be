"""Quantization by the general kernel: every rule, every width, every expressed type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.convert.quantize.flushing import flushed
from requant.formats.elements import BYTE, FLOATS
from requant.formats.rules import Overflow, Quotient
from requant.kernels.convert.quantize import rules as kernel
from requant.kernels.convert.quantize.general import QUANTIZE_ANY
from requant.kernels.simd.widen import FloatKind
from requant.mlir.types import TensorType
from requant.plan.lanes import LANES, rounded, rounded_scales, step_precision
from requant.plan.operands import QuantizedOperand
from requant.plan.plan import Array, Plan, quantizing
from requant.profiles import OperationRule, Rounding, ZeroPoint
from requant.profiles.rule import Missing, Steps

ROUNDINGS = (
    Rounding.NEAREST_EVEN,
    Rounding.NEAREST_AWAY,
    Rounding.NEAREST_UP,
    Rounding.NEAREST_DOWN,
    Rounding.TOWARD_ZERO,
    Rounding.FLOOR,
    Rounding.CEILING,
    Rounding.STOCHASTIC,
)
"""Those by which a real number becomes an integer."""
_IN_FLOAT = (Overflow.FLOAT_CLAMP, Overflow.FLOAT_SATURATE)
_INT32_MINIMUM, _INT32_MAXIMUM = -(1 << 31), (1 << 31) - 1
_LARGEST_F32_IN_INT32 = (1 << 31) - 128
_WIDEST_NARROW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneralPlan(Plan):
    """Plan of `requant.kernels.convert.quantize.general`."""

    lane: str
    wide: bool
    layout: Array
    factors: Array
    addends: Array
    zero_points: Array
    nans: Array
    rules: Array
    bounds: Array

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        QUANTIZE_ANY[self.lane, self.wide](
            source.view(BYTE),
            target.view(BYTE),
            start,
            source.size,
            self.layout,
            self.factors,
            self.addends,
            self.zero_points,
            self.nans,
            self.rules,
            self.bounds,
            counts,
        )

    def explain_undefined(self, counts: Array) -> str:
        lowest, highest = self.bounds[4:6].tolist()
        return (
            f"profile {self.profile} is undefined for this element: it is NaN, or rounds to a number outside "
            f"{lowest} to {highest}"
        )


def reciprocals(rule: OperationRule, operand: QuantizedOperand, scales: Array) -> Array:
    """1 / s in the lanes; of the type's own f64 scale, or 0 where it is subnormal, if the rule says so."""
    with np.errstate(over="ignore", divide="ignore"):
        if rule.quotient is Quotient.RECIPROCAL_OF_F64:
            return (1.0 / np.array(operand.scales)).astype(scales.dtype)
        found = (np.ones(1, scales.dtype) / scales).astype(scales.dtype)
        return flushed(found) if rule.flushes else found


def _addition(rule: OperationRule) -> kernel.Addition:
    if rule.quotient is Quotient.FUSED:
        return kernel.Addition.NONE
    if rule.zero_point is ZeroPoint.BEFORE_ROUNDING:
        return kernel.Addition.BEFORE
    return kernel.Addition.AFTER if rule.overflow in _IN_FLOAT else kernel.Addition.NONE


def adds_in_float(rule: OperationRule) -> bool:
    """Return whether the zero point is added to a float, so that nothing is added to the integer."""
    return _addition(rule) is not kernel.Addition.NONE or rule.quotient is Quotient.FUSED


def _stored_bounds(rule: OperationRule, operand: QuantizedOperand, in_float: bool, stepped: str) -> tuple[int, int]:
    """The first and last integer that can be stored. Bounds applied in a float type are rounded to it, and can lie
    beyond those of the type: then the storage type's own hold."""
    if not in_float or rule.overflow is Overflow.UNDEFINED:
        return operand.minimum, operand.maximum
    real = rounded(np.array([operand.minimum, operand.maximum], np.float64), FLOATS[stepped]).astype(np.float64)
    near = np.clip(real, -(2.0**40), 2.0**40).astype(np.int64).tolist()
    if rule.overflow is Overflow.FLOAT_CLAMP and operand.highest > 65535:
        # What int32 does not hold is the kernel's matter.
        return near[0], near[1]
    # Both bounds are infinite where they lie beyond the largest f16.
    first, last = (min(max(bound, operand.lowest), operand.highest) for bound in near)
    return first, last


def stored_nans(rule: OperationRule, operand: QuantizedOperand) -> Array:
    """Return what NaN is stored as, for each parameter of the type."""
    zero_points = np.array(operand.zero_points, np.int64)
    match rule.missing:
        case Missing.LOWEST:
            return np.full_like(zero_points, operand.minimum)
        case Missing.HIGHEST:
            return np.full_like(zero_points, operand.maximum)
        case Missing.ZERO_POINT:
            return zero_points
        case Missing.INT32_MINIMUM:
            return np.full_like(zero_points, _INT32_MINIMUM)
        case Missing.INDEFINITE | Missing.INDEFINITE_HIGHEST:
            converted = _INT32_MINIMUM if rule.missing is Missing.INDEFINITE else _LARGEST_F32_IN_INT32
            added = 0 if adds_in_float(rule) else zero_points
            wrapped = np.full_like(zero_points, converted + added).astype(np.int32).astype(np.int64)
            return np.clip(wrapped, operand.minimum, operand.maximum)
    return np.zeros_like(zero_points)


def plan_general(
    profile: str, rule: OperationRule, input_type: TensorType, operand: QuantizedOperand, seed: int
) -> GeneralPlan:
    """Plan any conversion to integers."""
    expressed = operand.expressed.name
    lane = LANES[expressed]
    stepped = expressed if rule.steps is Steps.EXPRESSED else "f32"
    in_float = adds_in_float(rule)
    wide = operand.width > _WIDEST_NARROW or lane == "<f8"
    integer = "<i8" if wide else "<i4"
    scales = rounded_scales(operand.scales, operand.expressed, rule)
    zero_points = np.array(operand.zero_points, np.int64)
    rules = {
        kernel.Field.SOURCE: FloatKind[expressed.upper()],
        kernel.Field.QUOTIENT: rule.quotient.code,
        kernel.Field.PRECISION: step_precision(rule.steps, expressed),
        kernel.Field.ADDITION: _addition(rule),
        kernel.Field.ROUNDING: rule.rounding.code,
        kernel.Field.OVERFLOW: rule.overflow.code,
        kernel.Field.NAN_UNDEFINED: rule.missing is Missing.ERROR,
        kernel.Field.SEED: seed,
        kernel.Field.BYTES: operand.dtype.itemsize,
    }
    stored = _stored_bounds(rule, operand, in_float, stepped)
    added = np.zeros_like(zero_points) if in_float else zero_points
    from_int32 = (_INT32_MINIMUM + int(added.max()), _INT32_MAXIMUM + int(added.min()))
    channels = operand.channels
    return GeneralPlan(
        **quantizing(profile, rule, input_type, operand),
        lane=lane,
        wide=wide,
        layout=channels.layout,
        factors=channels.lay_out(
            scales if rule.quotient is Quotient.DIVISION else reciprocals(rule, operand, scales), lane
        ),
        addends=channels.lay_out(rounded(zero_points.astype(np.float64), FLOATS[stepped]), lane),
        zero_points=channels.lay_out(added, integer),
        nans=channels.lay_out(stored_nans(rule, operand), integer),
        rules=np.array([int(rules[field]) for field in kernel.Field], np.int64),
        bounds=np.array(
            # 16 bits of storage are far below what int32 holds, and the kernel does not look at it.
            [
                operand.minimum,
                operand.maximum,
                *stored,
                operand.lowest,
                operand.highest,
                *(from_int32 if wide else (0, 0)),
            ],
            integer,
        ),
    )
