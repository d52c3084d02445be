"""QuantizeLinear, DequantizeLinear, Cast and QLinearMatMul as models of one node, all but the attributes as inputs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

Array = NDArray[Any]

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


PRODUCT_INPUTS = ("a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point", "y_scale", "y_zero_point")


def one_product(storage: str) -> Any:
    """A model of one QLinearMatMul of a column."""
    stored = TensorProto.INT8 if storage == "i8" else TensorProto.UINT8
    shapes: dict[str, list[Any]] = {"a": ["n", 1], "b": [1, 1]}
    inputs = [
        helper.make_tensor_value_info(
            name, TensorProto.FLOAT if name.endswith("scale") else stored, shapes.get(name, [])
        )
        for name in PRODUCT_INPUTS
    ]
    graph = helper.make_graph(
        [helper.make_node("QLinearMatMul", PRODUCT_INPUTS, ["y"])],
        "one",
        inputs,
        [helper.make_tensor_value_info("y", stored, ["n", 1])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def column_inputs(stored: Array, given: tuple[float, int], wanted: tuple[float, int]) -> dict[str, Array]:
    """The inputs of `one_product` that requantize a vector: by a matrix of one 1. Pairs are scale and zero point."""
    kind = stored.dtype
    values = (stored[:, None], np.float32(given[0]), kind.type(given[1]), np.ones((1, 1), kind), np.float32(1))
    fed = (*values, kind.type(0), np.float32(wanted[0]), kind.type(wanted[1]))
    return {name: np.asarray(value) for name, value in zip(PRODUCT_INPUTS, fed, strict=True)}
