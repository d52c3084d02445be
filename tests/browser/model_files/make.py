"""Make the model files beside this script with the libraries of their formats: run it in `.venv-interop`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers
import gguf
import numpy as np
import onnx
from ai_edge_litert import schema_py_generated as schema
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(__file__).parent


def make_onnx() -> None:
    """A model with scales per tensor and along an axis, as raw bytes and in fields of their own."""
    weights = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    initializers = [
        numpy_helper.from_array(np.float32(0.1), "s"),
        numpy_helper.from_array(np.uint8(3), "z"),
        numpy_helper.from_array(weights, "w"),
        numpy_helper.from_array(np.array([0.5, 0.25, 0.125], np.float32), "ws"),
        numpy_helper.from_array(np.array([0, 1, -1], np.int8), "wz"),
        helper.make_tensor("s2", TensorProto.FLOAT, [], [0.3]),
        helper.make_tensor("z2", TensorProto.INT8, [], [-7]),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("MatMul", ["xd", "wd"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "s2", "z2"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT8, [2, 4])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    onnx.checker.check_model(model)
    (FOLDER / "quantized.onnx").write_bytes(model.SerializeToString())


def make_gguf() -> None:
    """Tensors of floats and of blocks, after metadata of several types."""
    writer = gguf.GGUFWriter(FOLDER / "blocks.gguf", "llama")
    writer.add_uint32("answer", 42)
    writer.add_array("tokens", ["a", "bc", "<x>"])
    writer.add_array("scores", [0.5, 1.5])
    writer.add_tensor("norm", np.ones(32, np.float32))
    numbers = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
    blocks = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.attn_q.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensor(name: bytes, type_: int, shape: list[int], scales: list[float] | None = None, **quantized: Any) -> Any:
    tensor = schema.TensorT()
    tensor.name, tensor.type, tensor.shape, tensor.buffer = name, type_, shape, 0
    if scales is not None:
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale = scales
        tensor.quantization.zeroPoint = quantized["zeros"]
        tensor.quantization.quantizedDimension = quantized.get("axis", 0)
    return tensor


def make_tflite() -> None:
    """Tensors per tensor, along two axes, and of floats."""
    types = schema.TensorType
    graph = schema.SubGraphT()
    graph.name, graph.inputs, graph.outputs, graph.operators = b"main", [0], [2], []
    graph.tensors = [
        _tensor(b"input", types.INT8, [1, 4], [0.1], zeros=[-3]),
        _tensor(b"conv/weights", types.INT8, [2, 3, 3, 1], [0.5, 0.0625], zeros=[0, 0]),
        _tensor(b"output", types.FLOAT32, [1, 2]),
        _tensor(b"acc", types.INT16, [4], [0.001], zeros=[0]),
        _tensor(b"four", types.INT4, [2, 2], [0.25, 0.5], zeros=[0, 0], axis=1),
    ]
    model = schema.ModelT()
    model.version, model.description, model.operatorCodes = 3, b"x", []
    model.subgraphs, model.buffers = [graph], [schema.BufferT()]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    (FOLDER / "quantized.tflite").write_bytes(bytes(builder.Output()))


if __name__ == "__main__":
    make_onnx()
    make_gguf()
    make_tflite()
