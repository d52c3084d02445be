"""onnx's protobuf messages, imported where they are needed: the package `onnx` is an extra."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from requant.errors import CheckpointError, UnsupportedError

# A message of protobuf: its classes are made at run time.
Message = Any

FLOAT, FLOAT16, BFLOAT16 = 1, 10, 16
WEIGHTS = {FLOAT: "F32", FLOAT16: "F16", BFLOAT16: "BF16"}
"""The element types of weights that are quantized."""
UINT8, UINT4, INT4 = 2, 21, 22
INLINE, EXTERNAL = 0, 1
GRAPH, GRAPHS = 5, 10
ELEMENT_BITS = {
    1: 32,
    2: 8,
    3: 8,
    4: 16,
    5: 16,
    6: 32,
    7: 64,
    9: 8,
    10: 16,
    11: 64,
    12: 32,
    13: 64,
    14: 64,
    15: 128,
    16: 16,
    17: 8,
    18: 8,
    19: 8,
    20: 8,
    21: 4,
    22: 4,
    23: 4,
    24: 8,
    25: 2,
    26: 2,
}
"""Bits of an element, by the numbers of TensorProto.DataType; strings (8) have none."""


def messages() -> ModuleType:
    """Return the module with the classes of onnx's messages. Raises UnsupportedError where onnx is not installed."""
    try:
        from onnx import onnx_ml_pb2
    except ImportError:
        raise UnsupportedError(
            "ONNX models need the package onnx: run pip install '.[onnx]' in the repository"
        ) from None
    module: ModuleType = onnx_ml_pb2
    return module


def parse_model(data: bytes, file: str) -> Message:
    """Return the ModelProto of some bytes. Raises CheckpointError where they are none, UnsupportedError."""
    module = messages()
    model = module.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:
        # google.protobuf.message.DecodeError, and RecursionError of its Python implementation.
        raise CheckpointError(f"{file} is not an ONNX model: protobuf cannot read it", file=file) from None
    if not model.ir_version or not model.HasField("graph"):
        raise CheckpointError(f"{file} is not an ONNX model: it has no IR version or no graph", file=file)
    return model
