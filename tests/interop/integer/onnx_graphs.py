"""Integer operators of ONNX, each one graph, run by onnxruntime or by the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.interop.integer.quantized_tensors import DTYPES, Array, Quantized

System = Callable[[Any, Mapping[str, Array]], Array]

TYPES = {
    np.dtype(np.int8): TensorProto.INT8,
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.float32): TensorProto.FLOAT,
}


def node(operator: str, inputs: Mapping[str, Array], output: np.dtype[Any], **attributes: Any) -> Any:
    """A model of one node with its inputs in order. A bias that is not there is left out."""
    values = [helper.make_tensor_value_info(name, TYPES[each.dtype], list(each.shape)) for name, each in inputs.items()]
    graph = helper.make_graph(
        [helper.make_node(operator, list(inputs), ["y"], **attributes)], operator, values,
        [helper.make_tensor_value_info("y", TYPES[output], None)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def addition(sides: list[Quantized]) -> Any:
    """DequantizeLinear of a and of b, Add, and QuantizeLinear; parameters are initializers."""
    constants = []
    for name, side in zip("aby", sides, strict=True):
        zero = np.array(side.zero_points[0], DTYPES[side.storage])
        constants += [onnx.numpy_helper.from_array(np.array(side.scales[0], np.float32), f"{name}_s")]
        constants += [onnx.numpy_helper.from_array(zero, f"{name}_z")]
    nodes = [helper.make_node("DequantizeLinear", [f"{name}", f"{name}_s", f"{name}_z"], [f"{name}r"]) for name in "ab"]
    nodes += [helper.make_node("Add", ["ar", "br"], ["yr"])]
    nodes += [helper.make_node("QuantizeLinear", ["yr", "y_s", "y_z"], ["y"])]
    values = [
        helper.make_tensor_value_info(name, TYPES[DTYPES[side.storage]], ["n"])
        for name, side in zip("aby", sides, strict=True)
    ]
    graph = helper.make_graph(nodes, "add", values[:2], values[2:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def with_onnxruntime(model: Any, inputs: Mapping[str, Array]) -> Array:
    """The output of onnxruntime, graph optimizations off."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(inputs))[0])


def with_reference(model: Any, inputs: Mapping[str, Array]) -> Array:
    """The output of the reference evaluator."""
    return np.asarray(ReferenceEvaluator(model).run(None, dict(inputs))[0])


def parameters(name: str, side: Quantized, shape: tuple[int, ...]) -> dict[str, Array]:
    """Scale and zero point as inputs of a node, of rank 0 or 1."""
    return {
        f"{name}s": side.scales.reshape(shape),
        f"{name}z": side.zero_points.astype(DTYPES[side.storage]).reshape(shape),
    }
