"""The real systems' vectors through the operators of their own names: onnxruntime, the ONNX reference, oneDNN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from core.mlir import parse_type
from core.mlir.types import TensorType, UniformPerAxisType, UniformSubChannelType, UniformType
from core.operators.description import OperandTensor, Value
from tests.operator_calls import run, tensor
from tests.vector_cases import Conversion, conversions

CASES = [
    case
    for case in conversions()
    if case.name.startswith(("ort_quantize/", "onednn_quantize/")) and "!quant" in case.input_type + case.output_type
]
IMPLEMENTATIONS = {"onnx": "onnxruntime", "onnx_reference": "reference"}


def parts(case: Conversion) -> tuple[tuple[int, ...], Any]:
    """The shape, and the quantized element type."""
    input_type = parse_type(case.input_type)
    assert isinstance(input_type, TensorType)
    shape = tuple(size for size in input_type.shape or () if size is not None)
    return shape, input_type.element if case.operation == "dequantize" else parse_type(case.output_type)


def element_name(storage: str) -> str:
    return storage if storage.startswith("f") else storage.replace("u", "ui")


def onnx_call(case: Conversion, shape: tuple[int, ...], quantized: Any) -> tuple[Any, ...]:
    """The operands and attributes of QuantizeLinear or DequantizeLinear."""
    attributes: dict[str, Value] = {}
    scales: tuple[int, ...] = ()
    if isinstance(quantized, UniformPerAxisType):
        attributes, scales = {"axis": quantized.axis}, (len(quantized.scales),)
    elif isinstance(quantized, UniformSubChannelType):
        chosen = [(axis, block) for axis, block in quantized.blocks if block > 1]
        axis, block = chosen[0] if chosen else (0, 1)
        attributes, scales = {"axis": axis, "block_size": block}, quantized.scale_shape
    listed = [quantized.scale] if isinstance(quantized, UniformType) else quantized.scales
    points = [quantized.zero_point] if isinstance(quantized, UniformType) else quantized.zero_points
    stored = element_name(stored_name(quantized))
    expressed = quantized.expressed.name
    prefix = "x" if case.operation == "dequantize" else "y"
    inputs = {
        "x": OperandTensor(parse_shape(shape, stored if prefix == "x" else expressed), case.values),
        f"{prefix}_scale": tensor(expressed, np.reshape(np.array(listed), scales)),
        f"{prefix}_zero_point": tensor(stored, np.reshape(np.array(points), scales)),
    }
    return inputs, attributes


def stored_name(quantized: Any) -> str:
    storage = quantized.storage
    bits = storage.element.width
    return storage.element.name if storage.element.name[0] == "f" else f"{'i' if storage.signed else 'u'}{bits}"


def parse_shape(shape: tuple[int, ...], element: str) -> TensorType:
    found = parse_type(f"tensor<{''.join(f'{size}x' for size in shape)}{element}>")
    assert isinstance(found, TensorType)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_a_vector(case: Conversion) -> None:
    if case.expected is None:
        return
    shape, quantized = parts(case)
    if case.name.startswith("ort_"):
        inputs, attributes = onnx_call(case, shape, quantized)
        name = "onnx.QuantizeLinear" if case.operation == "quantize" else "onnx.DequantizeLinear"
        found = run(name, inputs, attributes, opset=25, implementation=IMPLEMENTATIONS[case.profile])["y"]
    else:
        found = run(*onednn_call(case, shape, quantized))["dst"]
    assert found.tobytes() == case.expected.tobytes()


def onednn_call(case: Conversion, shape: tuple[int, ...], quantized: Any) -> tuple[Any, ...]:
    stored = element_name(stored_name(quantized))
    quantizes = case.operation == "quantize"
    per_tensor = isinstance(quantized, UniformType)
    attributes: dict[str, Value] = {"scales": [quantized.scale] if per_tensor else list(quantized.scales)}
    if not per_tensor:
        attributes |= {"qtype": "per_channel", "axis": quantized.axis}
    if not stored.startswith("f"):
        attributes["zps"] = [quantized.zero_point] if per_tensor else list(quantized.zero_points)
    if quantizes:
        attributes["dst_type"] = stored
    src = OperandTensor(parse_shape(shape, "f32" if quantizes else stored), case.values)
    return f"onednn.{'Quantize' if quantizes else 'Dequantize'}", {"src": src}, attributes


def test_all_vectors_are_there() -> None:
    assert sum(case.name.startswith("ort_") for case in CASES) >= 100
    assert sum(case.name.startswith("onednn_") for case in CASES) >= 20
