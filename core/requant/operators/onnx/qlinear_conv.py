"""ONNX QLinearConv, opset 10 (https://onnx.ai/onnx/operators/onnx__QLinearConv.html).

    y = saturate(RNE(acc * M) + y_zero_point), acc the int32 sums of ConvInteger and B, modulo 2^32

M = f32(f32(x_scale * w_scale) / y_scale). onnxruntime: the product in f32. reference: in f64, y_zero_point added before
rounding.
"""

from __future__ import annotations

import numpy as np

from requant.description import Array, TensorValue
from requant.errors import TypeFitError
from requant.formats.elements import FLOATS, IntegerElement
from requant.integer.conv2d import plan_conv2d
from requant.mlir.types import TensorType
from requant.operators.description import Operand, Operator, OperatorCall, Outputs, Work
from requant.operators.execution import placed
from requant.operators.onnx.conv_integer import PLACES, per_output_channel
from requant.operators.onnx.convolution import ATTRIBUTES, Convolution
from requant.operators.onnx.operands import (
    IMPLEMENTATIONS,
    LAST_OPSET,
    PROFILES,
    integers_of,
    output_element,
    same_type,
    single,
)
from requant.operators.separate_parameters import MAX_FACTORS, Granularity, check_number_of_scales, quantized_type

_BYTES = {"ui8": 10, "i8": 10}
_F32 = FLOATS["f32"]


def _f64(array: Array) -> Array:
    return array.astype(np.float64)


def _weights(call: OperatorCall, shape: tuple[int, ...]) -> TensorType:
    """Return the type of w. Scales and zero points may be of different granularity."""
    channels = shape[0]
    scales = _f64(per_output_channel(call, "w_scale", channels))
    zeros = per_output_channel(call, "w_zero_point", channels).astype(np.int64)
    check_number_of_scales(scales.size, "/inputs/w_scale", MAX_FACTORS)
    if scales.size == zeros.size == 1:
        return quantized_type(shape, Granularity(), integers_of(call, "w"), _F32, scales, zeros)
    scales, zeros = (np.broadcast_to(each, (channels,)) for each in (scales, zeros))
    return quantized_type(shape, Granularity(0), integers_of(call, "w"), _F32, scales, zeros)


def _plan(call: OperatorCall) -> Work:
    x, w, bias = call.inputs["x"], call.inputs["w"], call.optional("B")
    same_type(call, "x_zero_point", "x")
    same_type(call, "w_zero_point", "w")
    convolution = Convolution.of(call, x, w)
    if bias is not None and bias.shape != w.shape[:1]:
        raise TypeFitError(
            f"B has shape {list(bias.shape)}; it has one element for each of {w.shape[0]} output channels",
            pointer="/inputs/B",
        )
    scale, zero_point = single(call, "x_scale"), single(call, "x_zero_point")
    zero = int(zero_point.data[0])
    zeros = zero_point.data.astype(np.int64)
    pixels = quantized_type(
        convolution.input_shape, Granularity(), integers_of(call, "x"), _F32, _f64(scale.data), zeros
    )
    element = integers_of(call, "y_zero_point")
    with placed(PLACES):
        plan = plan_conv2d(
            pixels,
            _weights(call, convolution.weights_shape),
            output_element(call, element),
            PROFILES[call.implementation],
            window=convolution.window,
            bias=None if bias is None else TensorType(bias.shape, IntegerElement(32)),
        )
    shape = tuple(size for size in plan.output_type.shape or () if size is not None)
    y_type = TensorType(convolution.output_shape(shape, len(x.shape)), element)

    def run() -> Outputs:
        y = np.empty(plan.elements, plan.output_dtype)
        with placed(PLACES):
            plan.run(convolution.input(x.data, zero), w.data, None if bias is None else bias.data, y)
        return {"y": TensorValue(y_type, convolution.output(y, shape))}

    return Work(run, plan.elements, max(plan.accumulation.cost, convolution.cost), convolution.copied)


def _parameters(name: str, count: str) -> tuple[Operand, Operand]:
    return (
        Operand(name=f"{name}_scale", description=f"{count}.", types={"f32": 10}),
        Operand(name=f"{name}_zero_point", description=f"{count}, of the type of {name}.", types=_BYTES),
    )


QLINEAR_CONV = Operator(
    system="onnx",
    name="QLinearConv",
    summary="Quantized convolution with an optional bias, in any number of spatial dimensions.",
    source="ONNX operators, opset 10; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2",
    versions=(10,),
    last_version=LAST_OPSET,
    implementations=IMPLEMENTATIONS,
    inputs=(
        Operand(name="x", description="[N, C, D1, .., Dn].", types=_BYTES),
        *_parameters("x", "One"),
        Operand(name="w", description="[M, C / group, k1, .., kn].", types=_BYTES),
        *_parameters("w", "One, or one for each output channel"),
        *_parameters("y", "One"),
        Operand(
            name="B",
            description="One element per output channel, with scale x_scale * w_scale and zero point 0.",
            types={"i32": 10},
            optional=True,
        ),
    ),
    outputs=(Operand(name="y", description="The output.", types=_BYTES),),
    attributes=ATTRIBUTES,
    deviations=(
        "onnxruntime supports only equal types of x and y, ui8 with w of either type or i8 with i8, and no dilations "
        "with SAME_UPPER and SAME_LOWER; other cases extend its arithmetic.",
        "The reference evaluator accepts pads with auto_pad, parameters and B of shapes that numpy broadcasts, and one "
        "scale for each output channel with two spatial dimensions only.",
        "A factor x_scale * w_scale / y_scale that is not finite is refused, as is w with a dimension of 0 and a "
        "window larger than the padded input.",
    ),
    plan=_plan,
    example={
        "opset": 10,
        "inputs": {
            "x": {"type": "tensor<1x1x3x3xui8>", "values": [255, 174, 162, 25, 203, 168, 58, 0, 133]},
            "x_scale": {"type": "tensor<f32>", "values": [0.00369]},
            "x_zero_point": {"type": "tensor<ui8>", "values": [132]},
            "w": {"type": "tensor<2x1x2x2xi8>", "values": [10, -20, 3, 4, -128, 127, 0, 1]},
            "w_scale": {"type": "tensor<2xf32>", "values": [0.00172, 0.0031]},
            "w_zero_point": {"type": "tensor<i8>", "values": [0]},
            "y_scale": {"type": "tensor<f32>", "values": [0.00162]},
            "y_zero_point": {"type": "tensor<ui8>", "values": [123]},
            "B": {"type": "tensor<2xi32>", "values": [500, -500]},
        },
        "attributes": {"auto_pad": "SAME_UPPER", "strides": [2, 1]},
    },
)
