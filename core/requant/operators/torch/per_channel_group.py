"""torch.ops.quantized_decomposed.quantize_per_channel_group and its inverse.

The rows of a matrix are channels; each is cut into groups of group_size.
"""

from __future__ import annotations

from dataclasses import replace

from requant.description import Kind
from requant.errors import ParameterError, TypeFitError
from requant.operators.description import Attribute, Operator, OperatorCall, Work
from requant.operators.torch.parameters import (
    BOUNDS,
    REAL_INPUT,
    REAL_OUTPUT,
    SOURCE,
    STORED_DTYPE,
    STORED_INPUT,
    STORED_OUTPUT,
    VERSIONS,
    real_dtype_attribute,
)
from requant.operators.torch.rows import (
    DTYPE_IS_THE_INPUTS,
    ROW_SCALES,
    ROW_ZERO_POINTS,
    Rows,
    checked_rows,
    dequantizing_rows,
    quantizing_rows,
    refuse_nan,
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
    scales, zero_points = call.inputs["scales"], call.given("zero_points")
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


def _quantize(call: OperatorCall) -> Work:
    refuse_nan(call.inputs["input"])
    return quantizing_rows(call, _groups(call))


def _dequantize(call: OperatorCall) -> Work:
    return dequantizing_rows(call, _groups(call))


_PARAMETERS = {
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
    plan=_quantize,
    example={
        "inputs": {"input": {"type": "tensor<1x4xf32>", "values": [0.3, 1.0, -2.0, 100.0]}, **_PARAMETERS},
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
    plan=_dequantize,
    example={
        "inputs": {"input": {"type": "tensor<1x4xi8>", "values": [4, 5, -8, 7]}, **_PARAMETERS},
        "attributes": _INT4,
    },
    deviations=(DTYPE_IS_THE_INPUTS,),
)
