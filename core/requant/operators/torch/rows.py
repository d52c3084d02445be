"""Operators of quantized_decomposed on rows with a scale and zero point each: per token, and per channel group.

Quantize: sat(RNE((x * (1/s)) + z)), each step rounded to the type of the scales. Dequantize: (q - z) * s.

A token is a row along the last dimension. Channels are the rows of a matrix; each is cut into groups of group_size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from requant.description import Array, Kind, TensorValue
from requant.errors import ParameterError, TensorDataError, TypeFitError
from requant.formats.elements import FLOATS, FloatElement
from requant.mlir.types import TensorType
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Outputs, Work
from requant.operators.torch.parameters import (
    BOUNDS,
    REAL_INPUT,
    REAL_OUTPUT,
    REALS,
    SOURCE,
    STORED_DTYPE,
    STORED_INPUT,
    STORED_OUTPUT,
    VERSIONS,
    real_dtype_attribute,
    storage_of,
    stored_element,
)
from requant.plan.float_arrays import narrowed, widen

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
    tensor, element = call.inputs["input"], stored_element(call)
    storage = storage_of(call, element)
    target = TensorType(tensor.shape, element)
    expressed = tensor.type.element
    assert isinstance(expressed, FloatElement)
    points = rows.zero_point_column
    assert points is not None

    def run() -> Outputs:
        dtype = rows.scales.dtype
        with np.errstate(all="ignore"):
            inverses = dtype.type(1) / rows.scale_column
            rounded = rows.laid(widen(tensor.data, expressed)) * inverses
            rounded += points.astype(dtype)
            np.rint(rounded, out=rounded)
            np.clip(rounded, dtype.type(storage.minimum), dtype.type(storage.maximum), out=rounded)
        # x86 casts NaN and what i32 does not hold to its least number, of which narrower types keep the low bits: 0.
        rounded[~(rounded < _PAST_INT32)] = -_PAST_INT32
        stored = rounded.astype(np.int32).astype(element.dtype)
        return {"output": TensorValue(target, stored.reshape(-1))}

    return Work(run, copied=_BYTES_OF_ROW * rows.scales.size)


def dequantizing_rows(call: OperatorCall, rows: Rows) -> Work:
    """Return the dequantization of the operand input, of dtype, to output_dtype."""
    tensor, element = call.inputs["input"], stored_element(call)
    if tensor.type.element != element:
        raise ParameterError(f"dtype is {call.text('dtype')}, which the input is not", pointer="/attributes/dtype")
    # Bounds are no part of dequantization, beside being checked.
    storage_of(call, element)
    expressed = FLOATS[REALS[call.text("output_dtype")]]
    target = TensorType(tensor.shape, expressed)

    def run() -> Outputs:
        stored, points = rows.laid(tensor.data), rows.zero_point_column
        with np.errstate(over="ignore"):
            # Integers are subtracted in the type of the zero points: those of i32 wrap.
            differences = stored if points is None else stored.astype(points.dtype) - points
            # f16 and bf16 are rounded from f32, also where the product is f64.
            reals = (differences.astype(rows.scales.dtype) * rows.scale_column).astype(np.float32).reshape(-1)
        return {"output": TensorValue(target, narrowed(reals, expressed))}

    return Work(run, copied=_BYTES_OF_ROW * rows.scales.size)


def refuse_nan(tensor: TensorValue) -> None:
    """Raise TensorDataError for NaN in the operand input."""
    expressed = tensor.type.element
    assert isinstance(expressed, FloatElement)
    wrong = np.isnan(widen(tensor.data, expressed))
    if wrong.any():
        raise TensorDataError(f"element {int(np.argmax(wrong))} is NaN, which torch refuses", pointer="/inputs/input")


_DEVIATIONS = (
    "Scales and zero points have the shape of the input with 1 as last dimension; torch broadcasts any shape with as "
    "many elements.",
)


def _tokens(call: OperatorCall) -> Rows:
    shape = call.inputs["input"].shape
    if not shape:
        raise TypeFitError("tokens are along the last dimension; the input has rank 0", pointer="/inputs/input")
    expected = (*shape[:-1], 1)
    for name in ("scales", "zero_points"):
        dimensions = call.inputs[name].shape
        if dimensions != expected:
            raise TypeFitError(
                f"{name} has shape {list(dimensions)}; there is one for each token: {list(expected)}",
                pointer=f"/inputs/{name}",
            )
    return checked_rows(shape[-1], call.inputs["scales"], call.inputs["zero_points"])


def _quantize_tokens(call: OperatorCall) -> Work:
    return quantizing_rows(call, _tokens(call))


def _dequantize_tokens(call: OperatorCall) -> Work:
    return dequantizing_rows(call, _tokens(call))


_TOKEN_PARAMETERS = {
    "scales": {"type": "tensor<2x1xf32>", "values": [0.5, 0.25]},
    "zero_points": {"type": "tensor<2x1xi32>", "values": [3, 0]},
}
_INT8 = {"quant_min": -128, "quant_max": 127, "dtype": "int8"}

QUANTIZE_PER_TOKEN = Operator(
    system="torch",
    name="quantized_decomposed.quantize_per_token",
    summary="Quantize per token: one scale per row along the last dimension.",
    source=SOURCE,
    inputs=(REAL_INPUT, ROW_SCALES, ROW_ZERO_POINTS),
    outputs=(STORED_OUTPUT,),
    attributes=(*BOUNDS, STORED_DTYPE),
    implementations=VERSIONS,
    plan=_quantize_tokens,
    example={
        "inputs": {"input": {"type": "tensor<2x2xf32>", "values": [0.3, 1.0, -2.0, 100.0]}, **_TOKEN_PARAMETERS},
        "attributes": _INT8,
    },
    deviations=_DEVIATIONS,
)
DEQUANTIZE_PER_TOKEN = Operator(
    system="torch",
    name="quantized_decomposed.dequantize_per_token",
    summary="Dequantize per token: one scale per row along the last dimension.",
    source=SOURCE,
    inputs=(STORED_INPUT, ROW_SCALES, ROW_ZERO_POINTS),
    outputs=(REAL_OUTPUT,),
    attributes=(*BOUNDS, STORED_DTYPE, real_dtype_attribute("output_dtype")),
    implementations=VERSIONS,
    plan=_dequantize_tokens,
    example={
        "inputs": {"input": {"type": "tensor<2x2xi8>", "values": [4, 5, -8, 127]}, **_TOKEN_PARAMETERS},
        "attributes": _INT8,
    },
    deviations=(*_DEVIATIONS, DTYPE_IS_THE_INPUTS),
)


_GROUP_SIZE = Attribute(
    name="group_size",
    kind=Kind.INTEGER,
    description="Elements per group. A group larger than a row means the whole row, if the last dimension of "
    "scales is 1.",
    default=128,
    lowest=2,
)


def _groups(call: OperatorCall) -> Rows:
    shape, size = call.inputs["input"].shape, call.integer("group_size")
    if len(shape) != 2:
        raise TypeFitError(f"the input is a matrix; this has rank {len(shape)}", pointer="/inputs/input")
    channels, length = shape
    scales, zero_points = call.inputs["scales"], call.optional("zero_points")
    if size > length and scales.shape[-1:] == (1,):
        size = length
    if not size or length % size:
        raise ParameterError(f"{length} columns have no groups of {size}", pointer="/attributes/group_size")
    count = channels * (length // size)
    for name, each in (("scales", scales), ("zero_points", zero_points)):
        if each is not None and each.data.size != count:
            raise TypeFitError(
                f"{name} has {each.data.size} elements; there are {count} groups", pointer=f"/inputs/{name}"
            )
    return checked_rows(size, scales, zero_points)


def _quantize_groups(call: OperatorCall) -> Work:
    refuse_nan(call.inputs["input"])
    return quantizing_rows(call, _groups(call))


def _dequantize_groups(call: OperatorCall) -> Work:
    return dequantizing_rows(call, _groups(call))


_GROUP_PARAMETERS = {
    "scales": {"type": "tensor<1x2xf32>", "values": [0.5, 0.25]},
    "zero_points": {"type": "tensor<1x2xi32>", "values": [3, 0]},
}
_INT4 = {"quant_min": -8, "quant_max": 7, "dtype": "int8", "group_size": 2}

QUANTIZE_PER_CHANNEL_GROUP = Operator(
    system="torch",
    name="quantized_decomposed.quantize_per_channel_group",
    summary="Quantize a matrix with one scale per group of a row.",
    source=SOURCE,
    inputs=(REAL_INPUT, ROW_SCALES, ROW_ZERO_POINTS),
    outputs=(STORED_OUTPUT,),
    attributes=(*BOUNDS, STORED_DTYPE, _GROUP_SIZE),
    implementations=VERSIONS,
    plan=_quantize_groups,
    example={
        "inputs": {"input": {"type": "tensor<1x4xf32>", "values": [0.3, 1.0, -2.0, 100.0]}, **_GROUP_PARAMETERS},
        "attributes": _INT4,
    },
)
DEQUANTIZE_PER_CHANNEL_GROUP = Operator(
    system="torch",
    name="quantized_decomposed.dequantize_per_channel_group",
    summary="Dequantize a matrix with one scale per group of a row.",
    source=SOURCE,
    inputs=(STORED_INPUT, ROW_SCALES, replace(ROW_ZERO_POINTS, optional=True)),
    outputs=(REAL_OUTPUT,),
    attributes=(*BOUNDS, STORED_DTYPE, _GROUP_SIZE, real_dtype_attribute("output_dtype")),
    implementations=VERSIONS,
    plan=_dequantize_groups,
    example={
        "inputs": {"input": {"type": "tensor<1x4xi8>", "values": [4, 5, -8, 7]}, **_GROUP_PARAMETERS},
        "attributes": _INT4,
    },
    deviations=(DTYPE_IS_THE_INPUTS,),
)
