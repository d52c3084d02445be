"""ONNX QuantizeLinear, opset 10 to 28 (https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html).

    y = saturate(RNE(x / y_scale) + y_zero_point); to small floats: cast(x / y_scale)

The arithmetic is that of the profiles `onnx`, `onnx_1_32` and `onnx_reference`. Which type x / y_scale is computed in:

- onnxruntime to 1.31: f32, whatever the types and `precision` are. It has f32, and f16 with a f16 scale; other types
  follow.
- onnxruntime since 1.32: `precision` if given, else the type of y_scale; up to opset 22 f32. It has f32 and f16, each
  with the scales of the other from opset 23 on, and both as `precision`.
- reference: `precision` if given, else numpy's common type of x and y_scale: f64 where one is i32, f32 where they
  differ.
"""

from __future__ import annotations

from math import prod

import numpy as np

from requant.convert.quantize import plan_quantize
from requant.description import Array, Kind, TensorValue
from requant.errors import TypeFitError, UnsupportedError
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.mlir.types import TensorType
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Outputs, Run, empty
from requant.operators.element_names import element_named, type_key
from requant.operators.execution import converted
from requant.operators.onnx.operands import (
    AXIS,
    BLOCK_SIZE,
    F8,
    FINITE,
    IMPLEMENTATIONS,
    LAST_OPSET,
    PROFILES,
    REFERENCE,
    SINCE_OPSET,
    element_numbered,
    granularity_of,
)
from requant.operators.separate_parameters import Granularity, check_integers, for_each, quantized_type, reals_of
from requant.plan.float_arrays import COMPUTE_DTYPES, narrowed, rounded, widen
from requant.plan.plan import Plan

_SAME_TYPES_UNTIL = 23
_PRECISIONS = ("f32", "f16", "bf16")


def _output_element(call: OperatorCall) -> IntegerElement | FloatElement:
    """The type of y_zero_point, else output_dtype, else ui8."""
    zero_point, number = call.optional("y_zero_point"), call.integer("output_dtype")
    named = ""
    if number:
        named = element_numbered(number, "output_dtype", tuple(SINCE_OPSET))
        if SINCE_OPSET[named] > call.version:
            raise UnsupportedError(
                f"QuantizeLinear gives {named} from opset {SINCE_OPSET[named]}", pointer="/attributes/output_dtype"
            )
    if zero_point is not None:
        key = type_key(zero_point.type.element)
        if named and named != key:
            detail = f"output_dtype is {named}, and y_zero_point of {key}"
            raise TypeFitError(detail, pointer="/attributes/output_dtype")
        named = key
    return element_named(named or "ui8")


def _computed_in(call: OperatorCall, x: str, scale: str, y: str) -> FloatElement:
    """Return the type that x / y_scale is computed in."""
    if call.implementation == "onnxruntime":
        return FLOATS[x if x == scale and x in COMPUTE_DTYPES and y not in FINITE else "f32"]
    precision = call.integer("precision")
    if call.implementation != REFERENCE and not precision:
        return FLOATS[scale if call.version >= _SAME_TYPES_UNTIL and scale in COMPUTE_DTYPES else "f32"]
    if precision:
        return FLOATS[element_numbered(precision, "precision", _PRECISIONS)]
    if "i32" in (x, scale):
        return FLOATS["f64"]
    return FLOATS[x if x == scale else "f32"]


def _zero_points(call: OperatorCall, element: IntegerElement | FloatElement) -> Array | None:
    """Return the zero points as numbers, None where they have no part in the arithmetic."""
    zero_point = call.optional("y_zero_point")
    if zero_point is None or type_key(element) in F8:
        return None
    if isinstance(element, IntegerElement):
        check_integers(zero_point, "y_zero_point")
        return zero_point.data.astype(np.int64)
    if np.any(reals_of(zero_point)):
        raise UnsupportedError(
            f"y_zero_point of {element.name} must be 0: its specification adds it before the cast, and no runtime "
            "other than the reference evaluator does",
            pointer="/inputs/y_zero_point",
        )
    return None


def _as_computed(x: TensorValue, element: FloatElement) -> Array:
    """Return the elements of x in the type of the computation, as that type is stored."""
    own = x.type.element
    if own == element:
        return x.data
    if isinstance(own, IntegerElement):
        if element.name == "bf16":  # as ml_dtypes converts int32: by way of f32
            reals = x.data.astype(np.float32)
        else:
            return _numbers(x.data, element)
    else:
        assert isinstance(own, FloatElement)
        reals = widen(x.data, own)
    return narrowed(reals, element)


def _numbers(integers: Array, element: FloatElement) -> Array:
    with np.errstate(over="ignore"):
        return integers.astype(element.tensor_dtype)


def _plan(call: OperatorCall) -> Run:
    x, scale = call.inputs["x"], call.inputs["y_scale"]
    x_key, scale_key = type_key(x.type.element), type_key(scale.type.element)
    if 19 <= call.version < _SAME_TYPES_UNTIL and x_key != scale_key:
        raise UnsupportedError(
            f"y_scale is of {scale_key}, and x of {x_key}; they may differ from opset {_SAME_TYPES_UNTIL}",
            pointer="/inputs/y_scale",
        )
    granularity = granularity_of(call, x, "y_scale", "y_zero_point")
    element = _output_element(call)
    computed = _computed_in(call, x_key, scale_key, type_key(element))
    if call.integer("precision"):
        element_numbered(call.integer("precision"), "precision", _PRECISIONS)
    zero_points = _zero_points(call, element)
    y_type = TensorType(x.shape, element)
    if prod(x.shape) == 0:
        return lambda: {"y": empty(y_type)}
    scales = rounded(reals_of(scale), computed).astype(np.float64)
    if computed.name == "f64" and isinstance(element, FloatElement):
        # The quotient in f64, and then the cast, which goes by way of f32.
        with np.errstate(all="ignore"):
            quotients = (reals_of(x) / for_each(scales, x.shape, granularity)).astype(np.float32)
        x, computed = TensorValue(TensorType(x.shape, FLOATS["f32"]), quotients), FLOATS["f32"]
        scales, granularity = np.ones(1), Granularity()
    stored = quantized_type(x.shape, granularity, element, computed, scales, zero_points)
    plan: Plan = plan_quantize(
        TensorType(x.shape, computed),
        stored,
        "onnx_reference" if type_key(element) in FINITE else PROFILES[call.implementation],
        saturate=bool(call.integer("saturate")) if type_key(element) in F8 else None,
        zero_point_given=call.optional("y_zero_point") is not None,
        more_expressed=("f64",),
        block_axis=granularity.axis if granularity.blocks is not None else None,
    )

    def run() -> Outputs:
        return {"y": TensorValue(y_type, converted(plan, _as_computed(x, computed), "x"))}

    return run


QUANTIZE_LINEAR = Operator(
    system="onnx",
    name="QuantizeLinear",
    summary="Quantize to integers of 2 to 16 bits or to small floats: per tensor, per axis or blocked.",
    source="ONNX operators, opset 10, 13, 19, 21, 23, 24, 25, 28; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2",
    versions=(10, 13, 19, 21, 23, 24, 25, 28),
    last_version=LAST_OPSET,
    implementations=IMPLEMENTATIONS,
    inputs=(
        Operand(name="x", description="The tensor to quantize.", types={"f32": 10, "i32": 10, "f16": 19, "bf16": 19}),
        Operand(
            name="y_scale",
            description="One scale, or one per index of the axis or per block. Of the type of x at opset 19 to 22.",
            types={"f32": 10, "f16": 19, "bf16": 19, "i32": 19, "f8E8M0FNU": 24},
        ),
        Operand(
            name="y_zero_point",
            description="One zero point per scale, of the type of y. Default: 0, with y of type ui8 or output_dtype.",
            types=SINCE_OPSET,
            optional=True,
        ),
    ),
    outputs=(Operand(name="y", description="The quantized tensor, of the shape of x.", types=SINCE_OPSET),),
    attributes=(
        AXIS,
        Attribute(
            name="saturate",
            kind=Kind.INTEGER,
            description="8-bit floats: whether overflow saturates to the largest value. Ignored for other types.",
            default=1,
            since=19,
            lowest=0,
            highest=1,
        ),
        BLOCK_SIZE,
        Attribute(
            name="output_dtype",
            kind=Kind.INTEGER,
            description="The type of y by its number in TensorProto, such as 3 for i8; 0: that of y_zero_point.",
            default=0,
            since=21,
            lowest=0,
            highest=255,
        ),
        Attribute(
            name="precision",
            kind=Kind.INTEGER,
            description="The type of x / y_scale by its number in TensorProto: 1 (f32), 10 (f16) or 16 (bf16); 0: "
            "unset. onnxruntime ignores it up to 1.31.",
            default=0,
            since=23,
            lowest=0,
            highest=255,
        ),
    ),
    deviations=(
        "onnxruntime has neither bf16, i32 and f8E8M0FNU, nor f4 and f6, nor up to 1.31 x and y_scale of two types: "
        "x / y_scale is computed in f32 there, or since 1.32 in bf16 where y_scale or precision is, and cast as the "
        "reference evaluator casts.",
        "A zero point of f4 or f6 other than 0 is refused; the reference evaluator adds it before the cast.",
        "The reference evaluator broadcasts zero points and accepts more scales than there are blocks; ONNX's "
        "specification and onnxruntime do not.",
    ),
    plan=_plan,
    example={
        "opset": 21,
        "inputs": {
            "x": {"type": "tensor<2x3xf32>", "values": [0.25, 0.75, -1.5, 2.5, 3.5, "Infinity"]},
            "y_scale": {"type": "tensor<3xf32>", "values": [0.5, 0.25, 1.0]},
            "y_zero_point": {"type": "tensor<3xi8>", "values": [0, 1, -3]},
        },
        "attributes": {"axis": -1},
    },
)
