"""add against DequantizeLinear, Add and QuantizeLinear, of onnxruntime and of the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from requant.integer.add import plan_add
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile as row
from tests.interop.integer.quantized_tensors import DTYPES, Array, Quantized, per_tensor
from tests.interop.onnxruntime_version import PROFILE

onnx: Any = pytest.importorskip("onnx")
ort: Any = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

pytestmark = pytest.mark.interop

TYPES = {"i8": TensorProto.INT8, "u8": TensorProto.UINT8}
SCALES = ((0.5, 0.5, 0.5), (0.5, 0.25, 1.0), (0.1, 0.3, 0.2), (0.02, 0.9, 0.9), (0.0371, 0.0113, 0.0254))


def model(storage: str, sides: list[Quantized]) -> Any:
    """a, b -> y; parameters are initializers."""
    constants = []
    for name, side in zip("aby", sides, strict=True):
        zero = np.array(side.zero_points[0], DTYPES[storage])
        constants += [onnx.numpy_helper.from_array(np.array(side.scales[0], np.float32), f"{name}_s")]
        constants += [onnx.numpy_helper.from_array(zero, f"{name}_z")]
    nodes = [helper.make_node("DequantizeLinear", [f"{name}", f"{name}_s", f"{name}_z"], [f"{name}r"]) for name in "ab"]
    nodes += [helper.make_node("Add", ["ar", "br"], ["yr"])]
    nodes += [helper.make_node("QuantizeLinear", ["yr", "y_s", "y_z"], ["y"])]
    values = [helper.make_tensor_value_info(name, TYPES[storage], ["n"]) for name in "aby"]
    graph = helper.make_graph(nodes, "add", values[:2], values[2:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def with_onnxruntime(model: Any) -> Callable[[Array, Array], Array]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda a, b: np.asarray(session.run(None, {"a": a, "b": b})[0])


def with_reference(model: Any) -> Callable[[Array, Array], Array]:
    evaluator = ReferenceEvaluator(model)
    return lambda a, b: np.asarray(evaluator.run(None, {"a": a, "b": b})[0])


def every_pair(storage: str) -> tuple[Array, Array]:
    limits = np.iinfo(DTYPES[storage])
    numbers = np.arange(limits.min, limits.max + 1).astype(DTYPES[storage])
    return np.repeat(numbers, 256), np.tile(numbers, 256)


def cases(storage: str) -> list[list[Quantized]]:
    points = ((0, 0, 0), (3, -128, 127)) if storage == "i8" else ((128, 128, 128), (3, 0, 255))
    return [
        [per_tensor(storage, scale, zero) for scale, zero in zip(scales, zeros, strict=True)]
        for scales in SCALES
        for zeros in points
    ]


def ours(sides: list[Quantized], a: Array, b: Array, profile: str) -> Array:
    plan = plan_add(sides[0].tensor(a.size), sides[1].tensor(a.size), sides[2].element, profile)
    target = np.empty(a.size, plan.output_dtype)
    plan.run(a, b, target)
    return target


@pytest.mark.parametrize(
    ("profile", "system"), [(PROFILE, with_onnxruntime), ("onnx_reference", with_reference)], ids=["ort", "reference"]
)
@pytest.mark.parametrize("storage", ["i8", "u8"])
def test_add(storage: str, profile: str, system: Any) -> None:
    live = systems.ONNXRUNTIME if profile == PROFILE else systems.ONNX_REFERENCE
    comparison = Comparison(f"DequantizeLinear, Add, QuantizeLinear {storage}, {profile}", live, row(profile, "add"))
    a, b = every_pair(storage)
    for sides in cases(storage):
        comparison.add(sides, a, ours(sides, a, b, profile), system(model(storage, sides))(a, b))
    comparison.finish(600_000)
