"""Dequantization by the specialised kernels: f32(f32(q - z) * s), and f64 products for 32-bit storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from requant.formats.elements import BYTE
from requant.formats.rules import Difference
from requant.kernels.convert.dequantize.native import DEQUANTIZE
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.integer_lanes import storage_of
from requant.kernels.simd.widen import FloatKind
from requant.mlir.types import TensorType
from requant.plan.lanes import LANES, rounded_scales, step_precision
from requant.plan.operands import QuantizedOperand
from requant.plan.plan import Array, Plan, dequantizing
from requant.profiles import OperationRule

_OF_FLOATS = (Difference.FLOATS, Difference.FLOATS_OF_F32)
_LARGEST_EXACT = 1 << 24


def is_native(rule: OperationRule, operand: QuantizedOperand) -> bool:
    """Return whether a specialised kernel computes this rule for this type.

    Up to 16 bits q is exact in f32, and where z is too, all ways to form the difference are one with steps in f32.
    With 32 bits they differ; of differences in f64 there is none with a product in f32.
    """
    if LANES[operand.expressed.name] != "<f4":
        return False
    in_f32 = step_precision(rule.steps, operand.expressed.name) is Precision.NATIVE
    if operand.dtype.itemsize < 4:
        return in_f32 or rule.difference in (Difference.INTEGER, *_OF_FLOATS)
    return in_f32 and operand.storage == "i32" and rule.difference is not Difference.DOUBLE_OF_F32


def _is_exact(operand: QuantizedOperand, precision: Precision) -> bool:
    """Return whether q and z are exact in f32, so that q - z is the same however it is formed."""
    return (
        precision is Precision.NATIVE
        and operand.dtype.itemsize < 4
        and all(abs(zero_point) <= _LARGEST_EXACT for zero_point in operand.zero_points)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePlan(Plan):
    """Plan of `requant.kernels.convert.dequantize.native`."""

    tallies: ClassVar[bool] = False

    kernel: Callable[..., None]
    layout: Array
    scales: Array
    zero_points: Array
    storage: int
    """Storage of the input."""
    expressed: int
    """FloatKind of the output."""
    precision: Precision
    of_floats: bool

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step. Nothing saturates, and integers have no NaN: `counts` stays as it is."""
        self.kernel(
            source.view(BYTE),
            target.view(BYTE),
            start,
            source.size,
            self.layout,
            self.scales,
            self.zero_points,
            self.storage,
            self.expressed,
            self.precision,
            self.of_floats,
        )


def plan_native(profile: str, rule: OperationRule, operand: QuantizedOperand, target: TensorType) -> NativePlan:
    """Plan a conversion for which `is_native` holds."""
    channels = operand.channels
    precision = step_precision(rule.steps, operand.expressed.name)
    double = rule.difference is Difference.DOUBLE and operand.dtype.itemsize == 4
    return NativePlan(
        **dequantizing(profile, rule, operand, target),
        kernel=DEQUANTIZE[double].compiled(),
        layout=channels.layout,
        scales=channels.lay_out(rounded_scales(operand.scales, operand.expressed, rule), "<f4"),
        zero_points=channels.lay_out(operand.zero_points, "<i4"),
        storage=int(storage_of(operand.dtype)),
        expressed=int(FloatKind[operand.expressed.name.upper()]),
        precision=precision,
        of_floats=rule.difference in _OF_FLOATS and not _is_exact(operand, precision),
    )
