"""LiteRT's CONCATENATION and PAD of quantized tensors (kernels/concatenation.cc, kernels/pad.cc).

    CONCATENATION  i8: all scales and zero points are equal. i16: copies, whatever they are
                   u8: where they are equal copies, else m = f32(sx * f32(1 / sy)),
                   sat(RNA(f32(f32(x * m) + f32(-zx * m))) + zy)
    PAD            the zero point around the tensor

All kernels are alike.
"""

from __future__ import annotations

from math import prod

import numpy as np

from requant.calibration.ranges.rule import round_half_away
from requant.description import Array, Kind
from requant.errors import ParameterError, TypeFitError, UnsupportedError
from requant.operators.description import Attribute, Operand, OperatorCall, Work
from requant.operators.litert.arithmetic import described, quantized, quantized_output, same_dtype, tensor
from requant.operators.separate_parameters import joined_shape, normalized_axis
from requant.operators.stages import I32, Quantized, Stages, in_stages, looked_up, stage

_MAX_JOINED = 8


def _table(x: Quantized, y: Quantized) -> Array:
    """Return the output for each code of u8."""
    codes = np.arange(256, dtype=np.uint8)
    if x == y:
        return codes
    factor = x.scale * (np.float32(1) / y.scale)
    real = codes.astype(np.float32) * factor + np.float32(-x.zero_point) * factor
    return np.clip(round_half_away(real) + np.float32(y.zero_point), 0, 255).astype(np.uint8)


def _plan_concatenation(call: OperatorCall) -> Work:
    names = [f"input_{index}" for index in range(_MAX_JOINED) if f"input_{index}" in call.inputs]
    if names != [f"input_{index}" for index in range(len(names))]:
        raise TypeFitError("tensors are numbered from 0 without a gap", pointer=f"/inputs/{names[-1]}")
    axis = normalized_axis(call.integer("axis"), len(call.inputs["input_0"].shape))
    for name in names:
        same_dtype(call, name, "input_0")
    shape = joined_shape(call.inputs, names, axis)
    of_x = [quantized(call, name, symmetric=()) for name in names]
    of_y, element = quantized_output(call, shape, "input_0", symmetric=())
    for name, each in zip(names, of_x, strict=True):
        if of_y.dtype == np.int8 and each != of_y:
            raise UnsupportedError("i8 has the scale and zero point of the output", pointer=f"/inputs/{name}")

    def stages() -> Stages:
        tensors = [call.inputs[name] for name in names]
        if of_y.dtype != np.uint8:
            return {"output": np.concatenate([each.data.reshape(each.shape) for each in tensors], axis)}
        tables = [_table(each, of_y) for each in of_x]
        parts = [looked_up(table, x.data).reshape(x.shape) for table, x in zip(tables, tensors, strict=True)]
        return {"tables": np.stack(tables), "output": np.concatenate(parts, axis)}

    return in_stages(call, stages, shape, element=element, blocks=True)


def _plan_pad(call: OperatorCall) -> Work:
    x, paddings = call.inputs["input"], call.inputs["paddings"]
    of_x = quantized(call, "input", symmetric=())
    if not of_x.lowest <= of_x.zero_point <= of_x.highest:
        raise ParameterError(
            f"the zero point {of_x.zero_point} is no number that can be stored", pointer="/inputs/input"
        )
    rank = len(x.shape)
    if paddings.shape != (rank, 2) or (paddings.data < 0).any():
        raise TypeFitError(f"paddings are {rank} pairs of 0 or more", pointer="/inputs/paddings")
    widths = paddings.data.reshape(rank, 2).tolist()
    shape = tuple(size + before + after for size, (before, after) in zip(x.shape, widths, strict=True))

    def stages() -> Stages:
        return {"output": np.pad(x.data.reshape(x.shape), widths, constant_values=of_x.zero_point)}

    return in_stages(call, stages, shape, prod(shape), element=x.type.element, blocks=True)


CONCATENATION = described(
    "CONCATENATION",
    summary=f"Join up to {_MAX_JOINED} quantized tensors along an axis.",
    inputs=(
        tensor("input_0", "Tensor 0, of i8, u8 or i16."),
        *(
            tensor(f"input_{index}", f"Tensor {index}, of the storage of tensor 0.", optional=True)
            for index in range(1, _MAX_JOINED)
        ),
    ),
    stages=(stage("tables", "The output for each code of each tensor, of u8.", {"ui8": 1}),),
    attributes=(
        Attribute(name="axis", kind=Kind.INTEGER, description="The dimension; negative values count from the end."),
    ),
    deviations=(f"LiteRT joins any number of tensors. For more than {_MAX_JOINED}, join the result with the others.",),
    plan=_plan_concatenation,
    example={
        "inputs": {
            "input_0": {"type": "tensor<2x!quant.uniform<u8:f32, 0.05:0>>", "values": [128, 5]},
            "input_1": {"type": "tensor<2x!quant.uniform<u8:f32, 0.1:3>>", "values": [128, 5]},
        },
        "attributes": {"axis": 0, "output_type": "!quant.uniform<u8:f32, 0.1:3>"},
    },
)

PAD = described(
    "PAD",
    summary="Put a quantized tensor among zeros.",
    inputs=(
        tensor("input", "The tensor, of i8, u8 or i16."),
        Operand(name="paddings", description="[rank, 2]: before and after each dimension.", types=I32),
    ),
    retyped=False,
    plan=_plan_pad,
    example={
        "inputs": {
            "input": {"type": "tensor<3x!quant.uniform<i8:f32, 0.5:3>>", "values": [-100, 3, 120]},
            "paddings": {"type": "tensor<1x2xi32>", "values": [1, 2]},
        },
    },
)
