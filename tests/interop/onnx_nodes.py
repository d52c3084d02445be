"""QuantizeLinear, DequantizeLinear and Cast as models of one node, with everything but the attributes as an input."""

from __future__ import annotations

from functools import cache
from typing import Any

import onnx
from onnx import TensorProto, helper

ELEMENT_TYPES: dict[str, int] = {
    "f32": TensorProto.FLOAT,
    "f64": TensorProto.DOUBLE,
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
    "f8E8M0FNU": TensorProto.FLOAT8E8M0,
}
"""By MLIR name."""


@cache
def one_node(
    operator: str,
    storage: str,
    expressed: str,
    rank: int,
    axis: int | None,
    block: int | None,
    opset: int,
    saturate: bool = True,
) -> onnx.ModelProto:
    """A model x, s, z -> y. `axis` None is per tensor; with `block` None, one scale for each index of the axis."""
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    if not saturate:
        attributes["saturate"] = 0
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


CAST_OPSETS = {"f4E2M1FN": 23, "f8E8M0FNU": 24, "f6E2M3FN": 28, "f6E3M2FN": 28}
"""The version of ONNX from which Cast has a type, where that is not 19."""


@cache
def cast_node(source: str, target: str, saturate: bool | None = None, round_mode: str | None = None) -> onnx.ModelProto:
    """A model x -> y that casts, with the attributes that are given."""
    given = {"saturate": None if saturate is None else int(saturate), "round_mode": round_mode}
    attributes = {name: value for name, value in given.items() if value is not None}
    opset = max(CAST_OPSETS.get(name, 19) for name in (source, target))
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=ELEMENT_TYPES[target], **attributes)],
        "Cast",
        [helper.make_tensor_value_info("x", ELEMENT_TYPES[source], ["d"])],
        [helper.make_tensor_value_info("y", ELEMENT_TYPES[target], ["d"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
