"""QuantizeLinear and DequantizeLinear as models of one node, with everything but the attributes as an input."""

from __future__ import annotations

from functools import cache
from typing import Any

import onnx
from onnx import TensorProto, helper

ELEMENT_TYPES: dict[str, int] = {
    "f32": TensorProto.FLOAT,
    "f16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16,
    "i2": TensorProto.INT2,
    "u2": TensorProto.UINT2,
    "i4": TensorProto.INT4,
    "u4": TensorProto.UINT4,
    "i8": TensorProto.INT8,
    "u8": TensorProto.UINT8,
    "i16": TensorProto.INT16,
    "u16": TensorProto.UINT16,
    "i32": TensorProto.INT32,
    "f8E4M3FN": TensorProto.FLOAT8E4M3FN,
    "f8E4M3FNUZ": TensorProto.FLOAT8E4M3FNUZ,
    "f8E5M2": TensorProto.FLOAT8E5M2,
    "f8E5M2FNUZ": TensorProto.FLOAT8E5M2FNUZ,
    "f4E2M1FN": TensorProto.FLOAT4E2M1,
    "f6E2M3FN": TensorProto.FLOAT6E2M3,
    "f6E3M2FN": TensorProto.FLOAT6E3M2,
}
"""By MLIR name."""


@cache
def one_node(
    operator: str, storage: str, expressed: str, rank: int, axis: int | None, block: int | None, opset: int
) -> onnx.ModelProto:
    """A model x, s, z -> y. `axis` None is per tensor; with `block` None, one scale for each index of the axis."""
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    if block is not None:
        attributes["block_size"] = block
    real, stored = ELEMENT_TYPES[expressed], ELEMENT_TYPES[storage]
    quantizes = operator == "QuantizeLinear"
    dimensions = [f"d{index}" for index in range(rank)]
    parameters = [] if axis is None else ["n"] if block is None else [f"n{index}" for index in range(rank)]
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "s", "z"], ["y"], **attributes)],
        operator,
        [
            helper.make_tensor_value_info("x", real if quantizes else stored, dimensions),
            helper.make_tensor_value_info("s", real, parameters),
            helper.make_tensor_value_info("z", stored, parameters),
        ],
        [helper.make_tensor_value_info("y", stored if quantizes else real, dimensions)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
