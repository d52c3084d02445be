"""ONNX ConvInteger, opset 10: a convolution of x - x_zero_point with w - w_zero_point in int32, modulo 2^32.

Padding is x_zero_point. Source: https://onnx.ai/onnx/operators/onnx__ConvInteger.html
"""

from __future__ import annotations

import numpy as np

from requant.description import Array, TensorValue
from requant.errors import TypeFitError
from requant.formats.elements import IntegerElement
from requant.integer.accumulation import Integers
from requant.integer.conv2d import Conv2d
from requant.mlir.types import TensorType
from requant.operators.description import Operand, Operator, OperatorCall, Outputs, Work
from requant.operators.execution import placed
from requant.operators.onnx.convolution import ATTRIBUTES, Convolution
from requant.operators.onnx.operands import IMPLEMENTATIONS, LAST_OPSET, same_type, single
from requant.profiles.rule import Accumulator, SumOverflow

_BYTES = {"ui8": 10, "i8": 10}
PLACES = {"lhs": "/inputs/x", "rhs": "/inputs/w", "bias": "/inputs/B", "output": "/inputs/y_scale"}


def per_output_channel(call: OperatorCall, name: str, channels: int) -> Array:
    """Return parameters of w, one or one for each of its output channels. Raise TypeFitError for another shape."""
    zero_point = call.inputs[name]
    if zero_point.shape not in ((), (1,), (channels,)):
        raise TypeFitError(
            f"{name} has shape {list(zero_point.shape)}; it has one element, or one for each of {channels} output "
            "channels",
            pointer=f"/inputs/{name}",
        )
    return zero_point.data


def _plan(call: OperatorCall) -> Work:
    x, w = call.inputs["x"], call.inputs["w"]
    same_type(call, "x_zero_point", "x")
    same_type(call, "w_zero_point", "w")
    convolution = Convolution.of(call, x, w)
    zero = int(single(call, "x_zero_point").data[0]) if call.optional("x_zero_point") is not None else 0
    of_weights = np.zeros(1, np.int64)
    if call.optional("w_zero_point") is not None:
        of_weights = per_output_channel(call, "w_zero_point", w.shape[0]).astype(np.int64)
    weights = Integers.of_array(w.data.reshape(convolution.weights_shape), of_weights.reshape(-1, 1, 1, 1))
    limits = np.iinfo(x.data.dtype)
    pixels = Integers(
        convolution.input_shape, x.data.dtype, int(limits.min), int(limits.max), np.full((1, 1, 1, 1), zero, np.int64)
    )
    with placed(PLACES):
        sums = Conv2d.of(pixels, weights, convolution.window, Accumulator.I32, SumOverflow.WRAP)
    images, height, width, outputs = sums.shape
    shape = (images, outputs, height, width)
    y_type = TensorType(convolution.output_shape(shape, len(x.shape)), IntegerElement(32))

    def run() -> Outputs:
        output = sums.run(convolution.input(x.data, zero), w.data).reshape(sums.shape)
        y = np.ascontiguousarray(output.transpose(0, 3, 1, 2)).reshape(-1)
        return {"y": TensorValue(y_type, convolution.output(y, shape))}

    return Work(run, sums.elements, max(sums.cost, convolution.cost), convolution.copied)


CONV_INTEGER = Operator(
    system="onnx",
    name="ConvInteger",
    summary="Integer convolution with zero points, in any number of spatial dimensions, as i32.",
    source="ONNX operators, opset 10; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2",
    versions=(10,),
    last_version=LAST_OPSET,
    inputs=(
        Operand(name="x", description="[N, C, D1, .., Dn].", types=_BYTES),
        Operand(name="w", description="[M, C / group, k1, .., kn].", types=_BYTES),
        Operand(name="x_zero_point", description="One, of the type of x. Default: 0.", types=_BYTES, optional=True),
        Operand(
            name="w_zero_point",
            description="One, or one per output channel, of the type of w. Default: 0.",
            types=_BYTES,
            optional=True,
        ),
    ),
    outputs=(Operand(name="y", description="The sums, modulo 2^32.", types={"i32": 10}),),
    attributes=ATTRIBUTES,
    deviations=(
        "onnxruntime has one zero point of w, and no dilations with SAME_UPPER and SAME_LOWER.",
        "The reference evaluator accepts pads with auto_pad, zero points of shapes that numpy broadcasts, and one zero "
        "point for each output channel of w with two spatial dimensions only.",
        "w with a dimension of 0 is refused, as is a window larger than the padded input.",
    ),
    implementations=IMPLEMENTATIONS,
    plan=_plan,
    example={
        "opset": 10,
        "inputs": {
            "x": {"type": "tensor<1x1x3x3xui8>", "values": [2, 3, 4, 5, 6, 7, 8, 9, 10]},
            "w": {"type": "tensor<1x1x2x2xui8>", "values": [1, 1, 1, 1]},
            "x_zero_point": {"type": "tensor<ui8>", "values": [1]},
        },
        "attributes": {"pads": [1, 1, 1, 1]},
    },
)
