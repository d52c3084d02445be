"""ONNX's element types in MLIR's spelling: the numbers that attributes name them by, and the opsets that have them."""

from __future__ import annotations

from collections.abc import Mapping

from requant.description import Choices
from requant.errors import ParameterError, UnsupportedError
from requant.operators.description import OperatorCall
from requant.operators.element_names import type_key

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


def element_numbered(number: int, attribute: str, taken: tuple[str, ...]) -> str:
    """Return the name of the type that an attribute gives by number, or raise ParameterError listing the numbers."""
    name = TENSOR_PROTO.get(number)
    if name is None or name not in taken:
        listed = ", ".join(f"{key} ({value})" for key, value in TENSOR_PROTO.items() if value in taken)
        raise ParameterError(f"{attribute} is {number}; available: {listed}", pointer=f"/attributes/{attribute}")
    return name


def same_type(call: OperatorCall, name: str, other: str) -> None:
    """Raise UnsupportedError unless an operand, if it is there, has the element type of another."""
    given, expected = call.given(name), call.inputs[other].type.element
    if given is not None and given.type.element != expected:
        raise UnsupportedError(
            f"{name} is of {type_key(given.type.element)}, and {other} of {type_key(expected)}; the same type",
            pointer=f"/inputs/{name}",
        )
