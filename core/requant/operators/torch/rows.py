"""Rows of numbers with a scale and zero point each: a token's, or a group's.

Quantize: sat(RNE((x * (1/s)) + z)), each step rounded to the type of the scales. Dequantize: (q - z) * s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.description import Array, TensorValue
from requant.errors import ParameterError, TensorDataError
from requant.formats.elements import FLOATS, FloatElement
from requant.mlir.types import TensorType
from requant.operators.description import Operand, OperatorCall, Outputs, Work
from requant.operators.torch.parameters import REALS, storage_of, stored_element
from requant.plan.compute_dtype import narrowed, widen

ROW_SCALES = Operand(
    name="scales", description="One per row. The arithmetic is done in their type.", types={"f32": 1, "f64": 1}
)
ROW_ZERO_POINTS = Operand(
    name="zero_points", description="One zero point per scale.", types={"i32": 1, "i64": 1, "f32": 1}
)

DTYPE_IS_THE_INPUTS = "dtype is that of the input, and holds the bounds; torch looks at neither."

_BYTES_OF_ROW = 32
"""Of the inverse of a scale, and a zero point, in the type of the arithmetic."""
_PAST_INT32 = 2.0**31


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor as rows of `length`, with the scale and zero point of each. `zero_points` is None for zeros."""

    length: int
    scales: Array
    zero_points: Array | None

    def laid(self, flat: Array) -> Array:
        """Return the elements with a dimension for the rows."""
        return flat.reshape(self.scales.size, self.length)

    @property
    def scale_column(self) -> Array:
        return self.scales[:, np.newaxis]

    @property
    def zero_point_column(self) -> Array | None:
        return None if self.zero_points is None else self.zero_points[:, np.newaxis]


def checked_rows(length: int, scales: TensorValue, zero_points: TensorValue | None) -> Rows:
    """Return rows whose scales are above 0 and finite, and whose zero points are finite, or raise ParameterError."""
    wrong = ~((scales.data > 0) & np.isfinite(scales.data))
    if wrong.any():
        raise ParameterError("a scale is above 0 and finite", index=int(np.argmax(wrong)), pointer="/inputs/scales")
    if zero_points is None:
        return Rows(length, scales.data, None)
    wrong = ~np.isfinite(zero_points.data)
    if wrong.any():
        raise ParameterError("a zero point is finite", index=int(np.argmax(wrong)), pointer="/inputs/zero_points")
    return Rows(length, scales.data, zero_points.data)


def quantizing_rows(call: OperatorCall, rows: Rows) -> Work:
    """Return the quantization of the operand input to dtype, within quant_min and quant_max."""
    given, element = call.inputs["input"], stored_element(call)
    storage = storage_of(call, element)
    target = TensorType(given.shape, element)
    expressed = given.type.element
    assert isinstance(expressed, FloatElement)
    points = rows.zero_point_column
    assert points is not None

    def run() -> Outputs:
        lane = rows.scales.dtype
        with np.errstate(all="ignore"):
            inverses = lane.type(1) / rows.scale_column
            found = rows.laid(widen(given.data, expressed)) * inverses
            found += points.astype(lane)
            np.rint(found, out=found)
            np.clip(found, lane.type(storage.minimum), lane.type(storage.maximum), out=found)
        # x86 casts NaN and what i32 does not hold to its least number, of which narrower types keep the low bits: 0.
        found[~(found < _PAST_INT32)] = -_PAST_INT32
        stored = found.astype(np.int32).astype(element.dtype)
        return {"output": TensorValue(target, stored.reshape(-1))}

    return Work(run, copied=_BYTES_OF_ROW * rows.scales.size)


def dequantizing_rows(call: OperatorCall, rows: Rows) -> Work:
    """Return the dequantization of the operand input, of dtype, to output_dtype."""
    given, element = call.inputs["input"], stored_element(call)
    if given.type.element != element:
        raise ParameterError(f"dtype is {call.text('dtype')}, which the input is not", pointer="/attributes/dtype")
    # Bounds are no part of dequantization, beside being checked.
    storage_of(call, element)
    expressed = FLOATS[REALS[call.text("output_dtype")]]
    target = TensorType(given.shape, expressed)

    def run() -> Outputs:
        stored, points = rows.laid(given.data), rows.zero_point_column
        with np.errstate(over="ignore"):
            # Integers are subtracted in the type of the zero points: those of i32 wrap.
            differences = stored if points is None else stored.astype(points.dtype) - points
            # f16 and bf16 are rounded from f32, also where the product is f64.
            reals = (differences.astype(rows.scales.dtype) * rows.scale_column).astype(np.float32).reshape(-1)
        return {"output": TensorValue(target, narrowed(reals, expressed))}

    return Work(run, copied=_BYTES_OF_ROW * rows.scales.size)


def refuse_nan(given: TensorValue) -> None:
    """Raise TensorDataError for NaN in the operand input."""
    expressed = given.type.element
    assert isinstance(expressed, FloatElement)
    wrong = np.isnan(widen(given.data, expressed))
    if wrong.any():
        raise TensorDataError(f"element {int(np.argmax(wrong))} is NaN, which torch refuses", pointer="/inputs/input")
