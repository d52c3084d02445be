"""Sums kept as they are: i32 at the scale of two operands together, which a bias is added to before they are scaled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant import mlir
from requant.lowering.passes.requant_to_integer_arith.contraction import Contraction
from requant.plan.operands import QuantizedOperand, StoredOperand


@dataclass(frozen=True, slots=True)
class SumType:
    """The scales of i32 sums with zero points 0, as f32, and the dimension that they go along, if there are several."""

    scales: tuple[float, ...]
    axis: int | None

    @classmethod
    def of(cls, type_: mlir.ElementType) -> SumType | None:
        """Return the scales of a quantized type with i32 storage, None for any other."""
        if not isinstance(type_, mlir.UniformType | mlir.UniformPerAxisType):
            return None
        storage = type_.storage
        if storage.width != 32 or not storage.signed or (storage.minimum, storage.maximum) != storage.default_bounds:
            return None
        if isinstance(type_, mlir.UniformType):
            return None if type_.zero_point else cls((_f32(type_.scale),), None)
        return None if any(type_.zero_points) else cls(tuple(map(_f32, type_.scales)), type_.axis)

    @classmethod
    def of_product(cls, lhs: StoredOperand, rhs: StoredOperand, contraction: Contraction) -> SumType | None:
        """Return the scales of the sums of two operands, None where they have none, or one for each row."""
        if not isinstance(lhs, QuantizedOperand) or not isinstance(rhs, QuantizedOperand) or len(lhs.scales) != 1:
            return None
        scale = _f32(lhs.scales[0])
        scales = tuple(_f32(scale * _f32(each)) for each in rhs.scales)
        return cls(scales, None if rhs.axis is None else contraction.axes(contraction.rhs)[rhs.axis])


def _f32(value: float) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(value))
