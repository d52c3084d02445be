"""ONNX's operands: element types in MLIR's spelling, which scale belongs to which element, one scale for an output.

Element types have the numbers that attributes name them by, and the opsets that have them. The shapes of scales in
QuantizeLinear and DequantizeLinear:

per tensor   one scale: rank 0, or 1 element
per axis     rank 1, as long as dimension `axis`
blocked      the rank and dimensions of x, but ceil(D / block_size) along `axis`; the last block may be short
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from requant.description import Choices, Kind, TensorValue
from requant.errors import ParameterError, TypeFitError, UnsupportedError, default_pointer
from requant.formats.elements import FLOATS, IntegerElement
from requant.mlir.types import ElementType
from requant.operators.description import Attribute, OperatorCall
from requant.operators.element_names import type_key
from requant.operators.separate_parameters import (
    Granularity,
    check_number_of_scales,
    normalized_axis,
    quantized_type,
    reals_of,
)

AXIS = Attribute(
    name="axis",
    kind=Kind.INTEGER,
    description="The dimension of x that the scales go along; negative values count from the end. Ignored with a "
    "single scale.",
    default=1,
    since=13,
)
BLOCK_SIZE = Attribute(
    name="block_size",
    kind=Kind.INTEGER,
    description="Elements along the axis that share a scale; 0: not blocked.",
    default=0,
    since=21,
    lowest=0,
)


def granularity_of(call: OperatorCall, x: TensorValue, scale_name: str, zero_point_name: str) -> Granularity:
    """Return what the shapes and attributes of a call say.

    Raise TypeFitError, ParameterError or LimitError for those that the operator does not take.
    """
    scale, zero_point = call.inputs[scale_name], call.optional(zero_point_name)
    single = scale.shape in ((), (1,))
    if zero_point is not None and zero_point.shape != scale.shape and not (single and zero_point.shape in ((), (1,))):
        raise TypeFitError(
            f"{zero_point_name} has shape {list(zero_point.shape)}, and {scale_name} {list(scale.shape)}",
            pointer=f"/inputs/{zero_point_name}",
        )
    with default_pointer(f"/inputs/{scale_name}"):
        check_number_of_scales(scale.data.size)
        if call.integer("block_size"):
            return _blocked(call, x.shape, scale.shape)
        if single:
            return Granularity()
        if call.version < AXIS.since:
            raise TypeFitError(f"{scale_name} is one number; several along an axis are there from opset {AXIS.since}")
        if len(scale.shape) > 1:
            since = "" if call.version >= BLOCK_SIZE.since else f", which is there from opset {BLOCK_SIZE.since}"
            raise TypeFitError(f"{scale_name} of rank {len(scale.shape)} needs block_size{since}")
        axis = normalized_axis(call.integer("axis"), len(x.shape))
        if scale.shape[0] != x.shape[axis]:
            raise TypeFitError(
                f"{scale_name} has {scale.shape[0]} elements for dimension {axis} of x, which has {x.shape[axis]}"
            )
        return Granularity(axis)


def _blocked(call: OperatorCall, shape: tuple[int, ...], scales: tuple[int, ...]) -> Granularity:
    rank, block = len(shape), call.integer("block_size")
    if rank == 0 or len(scales) != rank:
        raise TypeFitError(f"with block_size the scales have rank {len(scales)}, and x {rank}; the same, at least 1")
    axis = normalized_axis(call.integer("axis"), rank)
    expected = tuple(-(-size // block) if place == axis else size for place, size in enumerate(shape))
    if scales != expected:
        raise TypeFitError(
            f"the scales have shape {list(scales)}; blocks of {block} along axis {axis} of {list(shape)} ask for "
            f"{list(expected)}"
        )
    return Granularity(
        axis, tuple(min(block, max(size, 1)) if place == axis else 1 for place, size in enumerate(shape))
    )


LAST_OPSET = 28

TENSOR_PROTO: Mapping[int, str] = {
    1: "f32", 2: "ui8", 3: "i8", 4: "ui16", 5: "i16", 6: "i32", 10: "f16", 16: "bf16", 17: "f8E4M3FN",
    18: "f8E4M3FNUZ", 19: "f8E5M2", 20: "f8E5M2FNUZ", 21: "ui4", 22: "i4", 23: "f4E2M1FN", 24: "f8E8M0FNU",
    25: "ui2", 26: "i2", 27: "f6E2M3FN", 28: "f6E3M2FN",
}  # fmt: skip
"""TensorProto.DataType: the numbers of the types that quantization has to do with."""

F8 = ("f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ")
FINITE = ("f4E2M1FN", "f6E2M3FN", "f6E3M2FN")
SINCE_OPSET: Mapping[str, int] = {
    "ui8": 10, "i8": 10, **dict.fromkeys(F8, 19), "ui16": 21, "i16": 21, "ui4": 21, "i4": 21, "f4E2M1FN": 23,
    "ui2": 25, "i2": 25, "f6E2M3FN": 28, "f6E3M2FN": 28,
}  # fmt: skip
"""What QuantizeLinear gives and, with i32, DequantizeLinear takes."""

IMPLEMENTATIONS = Choices(
    "OnnxImplementation",
    ("onnxruntime", "onnxruntime_1_32", "reference"),
    "The implementation to match: onnxruntime's CPU provider up to 1.31, or since 1.32, which changed QuantizeLinear; "
    "or the ReferenceEvaluator of the onnx package.",
)
PROFILES = {"onnxruntime": "onnx", "onnxruntime_1_32": "onnx_1_32", "reference": "onnx_reference"}
REFERENCE = "reference"
"""The implementation that is not onnxruntime's."""


def element_numbered(number: int, attribute: str, supported: tuple[str, ...]) -> str:
    """Return the name of the type that an attribute gives by number, or raise ParameterError listing the numbers."""
    name = TENSOR_PROTO.get(number)
    if name is None or name not in supported:
        listed = ", ".join(f"{key} ({value})" for key, value in TENSOR_PROTO.items() if value in supported)
        raise ParameterError(f"{attribute} is {number}; available: {listed}", pointer=f"/attributes/{attribute}")
    return name


def same_type(call: OperatorCall, name: str, other: str) -> None:
    """Raise UnsupportedError unless an operand, if it is there, has the element type of another."""
    operand, expected = call.optional(name), call.inputs[other].type.element
    if operand is not None and operand.type.element != expected:
        raise UnsupportedError(
            f"{name} is of {type_key(operand.type.element)}, and {other} of {type_key(expected)}; the same type",
            pointer=f"/inputs/{name}",
        )


def single(call: OperatorCall, name: str) -> TensorValue:
    """Return an operand that has one element, or raise TypeFitError."""
    parameter = call.inputs[name]
    if parameter.shape not in ((), (1,)):
        raise TypeFitError(f"{name} has one element; this has shape {list(parameter.shape)}", pointer=f"/inputs/{name}")
    return parameter


def integers_of(call: OperatorCall, name: str) -> IntegerElement:
    """Return the element type of an operand of integers, or raise UnsupportedError for the floats that the text has."""
    element = call.inputs[name].type.element
    if not isinstance(element, IntegerElement):
        raise UnsupportedError(
            f"{name} is of {type_key(element)}, for which no reference result exists: onnxruntime has no kernel, and "
            "the reference evaluator truncates the operands to integers and has no such output",
            pointer=f"/inputs/{name}",
        )
    return element


def output_element(call: OperatorCall, element: IntegerElement) -> ElementType:
    """Return the quantized element type of y, whose storage is `element`: y_scale and y_zero_point."""
    scale, zero_point = single(call, "y_scale"), single(call, "y_zero_point")
    zeros = zero_point.data.astype(np.int64)
    return quantized_type((1,), Granularity(), element, FLOATS["f32"], reals_of(scale), zeros).element
