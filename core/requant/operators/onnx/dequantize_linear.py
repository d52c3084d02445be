"""ONNX DequantizeLinear, opset 10 to 28 (https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html).

    y = (x - x_zero_point) * x_scale

onnxruntime subtracts in int32, multiplies in f32 and rounds once more to f16 and bf16. The reference evaluator does the
same but for i32, which it rounds to f32 first; with a zero point all else is in f64.
"""

from __future__ import annotations

from math import prod

import numpy as np

from requant.convert.dequantize import plan_dequantize
from requant.description import Array, Kind, TensorValue
from requant.errors import UnsupportedError
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.mlir.types import TensorType
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Outputs, Run, empty
from requant.operators.element_names import type_key
from requant.operators.execution import converted
from requant.operators.onnx.operands import (
    AXIS,
    BLOCK_SIZE,
    IMPLEMENTATIONS,
    LAST_OPSET,
    REFERENCE,
    SINCE_OPSET,
    element_numbered,
    granularity_of,
    same_type,
)
from requant.operators.separate_parameters import Granularity, check_integers, for_each, quantized_type, reals_of
from requant.plan.float_arrays import narrowed

_STORED = {**SINCE_OPSET, "i32": 10}
_REALS = {"f32": 10, "f16": 19, "bf16": 19}


def _zero_points(call: OperatorCall, x: TensorValue) -> Array | None:
    zero_point = call.optional("x_zero_point")
    if zero_point is None:
        return None
    same_type(call, "x_zero_point", "x")
    wide = type_key(x.type.element) == "i32" and call.implementation != REFERENCE
    if (isinstance(x.type.element, FloatElement) or wide) and np.any(reals_of(zero_point)):
        raise UnsupportedError(f"x_zero_point of {type_key(x.type.element)} must be 0", pointer="/inputs/x_zero_point")
    if isinstance(x.type.element, FloatElement):
        return None
    check_integers(zero_point, "x_zero_point")
    return zero_point.data.astype(np.int64)


def _output_element(call: OperatorCall, scale: TensorValue) -> FloatElement:
    number = call.integer("output_dtype")
    if number:
        return FLOATS[element_numbered(number, "output_dtype", tuple(_REALS))]
    element = scale.type.element
    if type_key(element) == "f8E8M0FNU":
        raise UnsupportedError("with x_scale of f8E8M0FNU output_dtype is needed", pointer="/attributes/output_dtype")
    assert isinstance(element, FloatElement)
    return element


def _rounded(y_type: TensorType, wide: Array) -> TensorValue:
    """Return numbers of f32 or f64 as those of y."""
    element = y_type.element
    assert isinstance(element, FloatElement)
    return TensorValue(y_type, narrowed(wide, element))


def _in_f64(x: TensorValue, scales: Array, zero_points: Array, granularity: Granularity, y_type: TensorType) -> Run:
    """Return the reference evaluator's work on i32: numpy's type of f32 - i32 is f64."""

    def run() -> Outputs:
        z, s = (for_each(each, x.shape, granularity) for each in (zero_points, scales))
        with np.errstate(all="ignore"):
            return {"y": _rounded(y_type, (x.data.astype(np.float32).astype(np.float64) - z) * s)}

    return run


def _plan(call: OperatorCall) -> Run:
    x, scale = call.inputs["x"], call.inputs["x_scale"]
    granularity = granularity_of(call, x, "x_scale", "x_zero_point")
    target = _output_element(call, scale)
    zero_points = _zero_points(call, x)
    y_type = TensorType(x.shape, target)
    if prod(x.shape) == 0:
        return lambda: {"y": empty(y_type)}
    element = x.type.element
    assert isinstance(element, (IntegerElement, FloatElement))
    if element.name == "i32" and zero_points is not None and call.implementation == REFERENCE:
        return _in_f64(x, reals_of(scale), zero_points, granularity, y_type)
    # All scales are exact in f32, and a product in f32 rounded to f16 or bf16 is what both implementations give.
    stored = quantized_type(x.shape, granularity, element, FLOATS["f32"], reals_of(scale), zero_points)
    plan = plan_dequantize(stored, None, "onnx")

    def run() -> Outputs:
        return {"y": _rounded(y_type, converted(plan, x.data, "x"))}

    return run


DEQUANTIZE_LINEAR = Operator(
    system="onnx",
    name="DequantizeLinear",
    summary="Dequantize integers of 2 to 32 bits or small floats: per tensor, per axis or blocked.",
    source="ONNX operators, opset 10, 13, 19, 21, 23, 24, 25, 28; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2",
    versions=(10, 13, 19, 21, 23, 24, 25, 28),
    last_version=LAST_OPSET,
    implementations=IMPLEMENTATIONS,
    inputs=(
        Operand(name="x", description="The quantized tensor.", types=_STORED),
        Operand(
            name="x_scale",
            description="One scale, or one per index of the axis or per block.",
            types={**_REALS, "f8E8M0FNU": 24},
        ),
        Operand(
            name="x_zero_point",
            description="One zero point per scale, of the type of x. Default: 0. Must be 0 for floats, and for i32 "
            "in onnxruntime.",
            types=_STORED,
            optional=True,
        ),
    ),
    outputs=(
        Operand(name="y", description="The real tensor, of the type of x_scale or of output_dtype.", types=_REALS),
    ),
    attributes=(
        AXIS,
        BLOCK_SIZE,
        Attribute(
            name="output_dtype",
            kind=Kind.INTEGER,
            description="The type of y by its number in TensorProto: 1 (f32), 10 (f16) or 16 (bf16); 0: that of "
            "x_scale.",
            default=0,
            since=23,
            lowest=0,
            highest=255,
        ),
    ),
    deviations=(
        "onnxruntime wraps x - x_zero_point of i32; a nonzero i32 zero point is refused here, as ONNX specifies.",
        "The reference evaluator subtracts a zero point of f6; here it must be 0.",
        "The reference evaluator has no implementation for opset 10 and 13; its bits are those of opset 19 here.",
        "The reference evaluator broadcasts zero points and accepts more scales than there are blocks.",
    ),
    plan=_plan,
    example={
        "opset": 21,
        "inputs": {
            "x": {"type": "tensor<2x4xi4>", "values": [-8, -1, 0, 7, 1, 2, 3, 4]},
            "x_scale": {"type": "tensor<2x2xf32>", "values": [0.5, 0.25, 2.0, 1.0]},
        },
        "attributes": {"block_size": 2},
    },
)
