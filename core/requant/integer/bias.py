"""The bias of a product: integers added to its sums, one for each column.

A bias of plain integers, or whose scale is that of the sums (input scale times weight scale, compared in f32), is added
as it is. One of another scale s_b is rescaled once, exactly: round(b * s_b / (s_in * s_w)), each scale an f32. No
system rescales (LiteRT refuses, ONNX has no scale to compare), so the rounding is Requant's own choice: away from zero
in LiteRT's profiles, to even in the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import PreconditionError, TypeFitError, UnsupportedError, about
from requant.errors.cancellation import checked
from requant.formats.elements import IntegerElement
from requant.formats.rounding import Rounding
from requant.integer.accumulation import LARGEST_BIAS
from requant.integer.integers import Integers
from requant.mlir.types import TensorType
from requant.plan.operands import StoredOperand, integer_operand, quantized_operand, static_shape
from requant.profiles import OperationRule

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Bias:
    """`ratios`: what each value is multiplied by, where its scale is not that of the sums."""

    tensor: TensorType
    integers: Integers
    ratios: tuple[Fraction, ...] | None
    rounding: Rounding

    def added(self, values: Array) -> Array:
        """Return what is added to the sums of each column, as int64.

        Raise PreconditionError for a value that 62 bits do not hold once it is rescaled.
        """
        if self.ratios is None:
            return values.astype(np.int64)
        found = []
        for index, (value, ratio) in enumerate(checked(zip(values.tolist(), self.ratios, strict=True))):
            rescaled = value * ratio
            rounded = round(rescaled)
            if self.rounding is Rounding.NEAREST_AWAY and abs(rounded - rescaled) == Fraction(1, 2):
                rounded = int(rescaled + (Fraction(1, 2) if rescaled > 0 else -Fraction(1, 2)))
            if abs(rounded) >= LARGEST_BIAS:
                raise PreconditionError(f"bias {index} is beyond 62 bits at the scale of the sums", index=index)
            found.append(rounded)
        return np.array(found, np.int64)


def plan_bias(
    tensor: TensorType, columns: int, scales: Sequence[float] | None, rule: OperationRule, profile: str
) -> Bias:
    """Take a bias apart. `scales`: of the sums, one or one for each column, None where they have none.

    Raise TypeFitError unless it has one dimension of `columns`, UnsupportedError for elements that are no integers, and
    for a quantized bias with a zero point, or for sums without a scale.
    """
    with about("bias"):
        shape = static_shape(tensor)
        if shape != (columns,):
            raise TypeFitError(f"a bias here has {columns} elements in one dimension; this has shape {list(shape)}")
        operand: StoredOperand
        if isinstance(tensor.element, IntegerElement):
            operand = integer_operand(tensor, "bias")
            return Bias(tensor, Integers.of_operand(operand), None, Rounding.NEAREST_EVEN)
        operand = quantized_operand(tensor, "bias", rule, profile)
        operand.check_symmetric("bias", "a bias has zero point 0")
        if scales is None:
            raise UnsupportedError(
                "the sums have no scale, or more than one to a column; give a bias of plain integers"
            )
        with np.errstate(over="ignore"):
            scales_of_bias = np.array(operand.scales, np.float32).astype(np.float64)
        own = np.broadcast_to(scales_of_bias, (columns,))
        sums = np.broadcast_to(np.array(scales), (columns,))
        ratios = None if _are_equal(own, sums) else _ratios(own.tolist(), sums.tolist())
        away = rule.rounding is Rounding.NEAREST_AWAY
        rounding = Rounding.NEAREST_AWAY if away else Rounding.NEAREST_EVEN
        return Bias(tensor, Integers.of_operand(operand), ratios, rounding)


def _are_equal(own: Array, sums: Array) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.all(own == sums.astype(np.float32)))


def _ratios(own: list[float], sums: list[float]) -> tuple[Fraction, ...]:
    if not all(0.0 < each < float("inf") for each in sums):
        raise UnsupportedError("the scale of the sums is 0 or infinite, so that a bias cannot be rescaled to it")
    made: dict[tuple[float, float], Fraction] = {}
    for pair in checked(zip(own, sums, strict=True)):
        if pair not in made:
            made[pair] = Fraction(pair[0]) / Fraction(pair[1])
    return tuple(made[pair] for pair in zip(own, sums, strict=True))
