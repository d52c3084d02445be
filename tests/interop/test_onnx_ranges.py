"""Range rules of onnxruntime's tools and of DynamicQuantizeLinear in its three readings, and the tools' bias."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from requant.calibration.bias import bias_rule_named, bias_scales, quantize_bias
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import bias
from tests.interop.range_cases import Array, RangeComparison, as_f32_steps, ranges

onnx: Any = pytest.importorskip("onnx")
ort: Any = pytest.importorskip("onnxruntime")
quant_utils: Any = pytest.importorskip("onnxruntime.quantization.quant_utils")
onnx_quantizer: Any = pytest.importorskip("onnxruntime.quantization.onnx_quantizer")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

pytestmark = pytest.mark.interop

TYPES = {"i8": "INT8", "u8": "UINT8", "i16": "INT16", "u16": "UINT16", "i4": "INT4", "u4": "UINT4"}


@pytest.mark.parametrize("least", [None, 1e-4])
@pytest.mark.parametrize(("symmetric", "reduced"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("storage", TYPES)
def test_tools(storage: str, symmetric: bool, reduced: bool, least: float | None) -> None:
    options: dict[str, Any] = {"symmetric": symmetric, "reduced": reduced}
    if least is not None:
        options["minimum_real_range"] = least
    element = getattr(TensorProto, TYPES[storage])
    lowest, highest = quant_utils.get_qmin_qmax_for_qType(element, reduce_range=reduced, symmetric=symmetric)
    comparison = RangeComparison(systems.ONNXRUNTIME, "onnxruntime", storage, **options)
    for low, high, scale, zero_point in comparison.pairs(*ranges(11, 500)):
        ends = np.array(low, np.float32), np.array(high, np.float32)
        theirs = quant_utils.compute_scale_zp(*ends, lowest, highest, symmetric, least)
        comparison.add((low, high), (scale, zero_point), (float(theirs[1]), int(theirs[0])))
    comparison.finish(1000)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("storage", TYPES)
def test_tools_in_blocks(storage: str, symmetric: bool) -> None:
    """A weight whose blocks are the pairs of ends."""
    lows, highs = as_f32_steps(*ranges(12, 3000))
    with np.errstate(over="ignore"):
        kept = np.isfinite(np.maximum(np.abs(lows), np.abs(highs)) * np.float32(2))
    lows, highs = lows[kept], highs[kept]
    weight = np.stack([lows, highs])
    zero_points, scales = quant_utils.compute_scale_zp_blocked(
        weight, getattr(TensorProto, TYPES[storage]), 0, 2, symmetric
    )
    comparison = RangeComparison(systems.ONNXRUNTIME, "onnxruntime_blocked", storage, symmetric=symmetric)
    for index, (low, high, scale, zero_point) in enumerate(comparison.pairs(lows, highs)):
        comparison.add((low, high), (scale, zero_point), (float(scales[0, index]), int(zero_points[0, index])))
    comparison.finish(6000)


def dynamic(nodes: list[Any], outputs: tuple[str, str]) -> Any:
    graph = helper.make_graph(
        nodes,
        "dynamic",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])],
        [
            helper.make_tensor_value_info(outputs[0], TensorProto.FLOAT, []),
            helper.make_tensor_value_info(outputs[1], TensorProto.UINT8, []),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


OPERATOR = dynamic([helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])], ("s", "z"))
# The last node of the body quantizes x.
BODY = dynamic(
    list(onnx.defs.get_schema("DynamicQuantizeLinear", 11).function_body.node)[:-1], ("y_scale", "y_zero_point")
)


class Session:
    def __init__(self, model: Any) -> None:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def run(self, outputs: None, inputs: dict[str, Array]) -> Any:
        return self._session.run(outputs, inputs)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("scheme", "system"),
    [
        ("onnx_dynamic", Session(OPERATOR)),
        ("onnx_dynamic_reference", ReferenceEvaluator(OPERATOR)),
        ("onnx_dynamic_function", Session(BODY)),
        ("onnx_dynamic_function", ReferenceEvaluator(BODY)),
    ],
    ids=["onnxruntime", "reference", "body in onnxruntime", "body in the reference"],
)
def test_dynamic_quantize_linear(scheme: str, system: Any) -> None:
    comparison = RangeComparison(
        systems.ONNXRUNTIME if isinstance(system, Session) else systems.ONNX_REFERENCE, scheme, "u8"
    )
    for low, high, scale, zero_point in comparison.pairs(*as_f32_steps(*ranges(13, 1000))):
        theirs = system.run(None, {"x": np.array([low, high], np.float32)})
        comparison.add((low, high), (scale, zero_point), (float(theirs[0]), int(theirs[1])))
    comparison.finish(1900)


@pytest.mark.parametrize("per_channel", [False, True])
def test_bias(per_channel: bool) -> None:
    """The tools' own function on a model that has nothing but the bias."""
    logging.disable(logging.WARNING)  # one for each bias that is cut
    rng = np.random.default_rng(14)
    rule = bias_rule_named("onnxruntime")
    channels = 2000
    for spread in (0.0, 6.0, 12.0):
        values = (rng.standard_normal(channels) * 10.0 ** rng.uniform(-2, spread, channels)).astype(np.float32)
        input_scale = np.float32(rng.uniform(1e-3, 1))
        weights = rng.uniform(1e-3, 1, channels if per_channel else 1).astype(np.float32)
        graph = helper.make_graph([], "bias", [], [], [numpy_helper.from_array(values, "b")])
        storage = quant_utils.QuantType.QInt8
        quantizer = onnx_quantizer.ONNXQuantizer(
            helper.make_model(graph),
            per_channel=False,
            reduce_range=False,
            mode=quant_utils.QuantizationMode.QLinearOps,
            static=True,
            weight_qType=storage,
            activation_qType=storage,
            tensors_range={},
            nodes_to_quantize=[],
            nodes_to_exclude=[],
            op_types_to_quantize=[],
        )
        quantizer.quantize_bias_static_impl("b", np.array(input_scale), weights)
        made = {item.name: numpy_helper.to_array(item) for item in quantizer.model.initializer()}
        scales = bias_scales(rule, float(input_scale), weights.astype(np.float64))
        assert scales.tolist() == made["b_quantized_scale"].tolist()
        assert quantize_bias(rule, values, scales).values.tolist() == made["b_quantized"].tolist()
    logging.disable(logging.NOTSET)
    record(systems.ONNXRUNTIME, [bias("onnxruntime")], 3 * channels)
