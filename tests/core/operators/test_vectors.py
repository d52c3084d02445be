"""The real systems' vectors through the operators of their own names: ONNX, oneDNN, StableHLO, MLIR and LiteRT."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from requant.description import TensorValue, Value
from requant.errors import RequantError
from requant.mlir import parse_type
from requant.mlir.types import TensorType, UniformPerAxisType, UniformSubChannelType, UniformType
from requant.operators.registry import operator_named
from tests.support.cases import by_file, check_each
from tests.support.operator_calls import run, tensor
from tests.vector_cases import Conversion, conversions

CASES = [
    case
    for case in conversions()
    if case.name.startswith(("ort_quantize/", "onednn_quantize/")) and "!quant" in case.input_type + case.output_type
]
IMPLEMENTATIONS = {"onnx": "onnxruntime", "onnx_1_32": "onnxruntime_1_32", "onnx_reference": "reference"}


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
        "x": TensorValue(parse_shape(shape, stored if prefix == "x" else expressed), case.values),
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


@pytest.mark.parametrize("file", by_file(CASES))
def test_vectors(file: str) -> None:
    check_each(by_file(CASES)[file], check_vector)


def check_vector(case: Conversion) -> None:
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


def test_vectors_with_parameters_as_operands() -> None:
    """oneDNN's DynamicQuantize and DynamicDequantize compute what the static ones do."""
    found = [case for case in CASES if case.name.startswith("onednn_") and "/f8/" not in case.name]
    check_each(found, check_vector_with_parameters_as_operands)


def check_vector_with_parameters_as_operands(case: Conversion) -> None:
    assert case.expected is not None
    shape, quantized = parts(case)
    name, inputs, attributes = onednn_call(case, shape, quantized)
    scales, zps = attributes.pop("scales"), attributes.pop("zps", None)
    inputs["scales"] = tensor("f32", scales)
    if zps is not None:
        inputs["zps"] = tensor("i32", zps)
    found = run(name.replace(".", ".Dynamic"), inputs, attributes)["dst"]
    assert found.tobytes() == case.expected.tobytes()


# (profile, operation): operator and its attributes.
TYPED: dict[tuple[str, str], tuple[str, dict[str, Value]]] = {
    ("stablehlo", "quantize"): ("stablehlo.uniform_quantize", {}),
    ("stablehlo", "requantize"): ("stablehlo.uniform_quantize", {}),
    ("stablehlo", "dequantize"): ("stablehlo.uniform_dequantize", {}),
    ("mlir", "quantize"): ("mlir.quant.qcast", {}),
    ("mlir", "dequantize"): ("mlir.quant.dcast", {}),
    ("litert", "quantize"): ("litert.QUANTIZE", {"kernel": "reference"}),
    ("litert", "requantize"): ("litert.QUANTIZE", {"kernel": "reference"}),
    ("litert", "dequantize"): ("litert.DEQUANTIZE", {"kernel": "reference"}),
    ("litert_xnnpack", "quantize"): ("litert.QUANTIZE", {"kernel": "xnnpack"}),
    ("litert_xnnpack", "requantize"): ("litert.QUANTIZE", {"kernel": "xnnpack"}),
}
TYPED_CASES = [
    case
    for case in conversions()
    if (case.profile, case.operation) in TYPED
    and case.name.startswith(("stablehlo_passes/", "lower_quant_ops/", "tflite_quantize_op/"))
    and not case.options
    and not case.multipliers
]


@pytest.mark.parametrize("file", by_file(TYPED_CASES))
def test_vectors_whose_types_say_all(file: str) -> None:
    check_each(by_file(TYPED_CASES)[file], check_vector_whose_types_say_all)


def check_vector_whose_types_say_all(case: Conversion) -> None:
    name, more = TYPED[case.profile, case.operation]
    input_type = parse_type(case.input_type)
    assert isinstance(input_type, TensorType)
    operator = operator_named(name)
    attributes = dict(more)
    if any(attribute.name == "output_type" for attribute in operator.attributes):
        attributes["output_type"] = parse_type(case.output_type)
    inputs = {operator.inputs[0].name: TensorValue(input_type, case.values)}
    if case.expected is None:
        with pytest.raises(RequantError):
            run(name, inputs, attributes)
        return
    (found,) = run(name, inputs, attributes).values()
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
    src = TensorValue(parse_shape(shape, "f32" if quantizes else stored), case.values)
    return f"onednn.{'Quantize' if quantizes else 'Dequantize'}", {"src": src}, attributes


def test_all_vectors_are_there() -> None:
    assert sum(case.name.startswith("ort_") for case in CASES) >= 100
    assert sum(case.name.startswith("onednn_") for case in CASES) >= 20
    counts = Counter(TYPED[case.profile, case.operation][0] for case in TYPED_CASES)
    assert counts == {
        "stablehlo.uniform_quantize": 78,
        "stablehlo.uniform_dequantize": 32,
        "mlir.quant.qcast": 569,
        "mlir.quant.dcast": 283,
        "litert.QUANTIZE": 174,
        "litert.DEQUANTIZE": 9,
    }
