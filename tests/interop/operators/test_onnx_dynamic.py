"""DynamicQuantizeLinear over a grid of shapes, ranges and special values, beside onnxruntime and the reference."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from requant.errors import PreconditionError
from tests.interop.conformance import systems
from tests.interop.onnxruntime_version import IMPLEMENTATION
from tests.interop.operators.counting import Tally
from tests.interop.operators.typed_arrays import Array, same
from tests.support.operator_calls import run, tensor

onnx: Any = pytest.importorskip("onnx")
ort: Any = pytest.importorskip("onnxruntime")

from onnx.reference import ReferenceEvaluator  # noqa: E402

from tests.interop.operators.onnx_node import session_options  # noqa: E402

pytestmark = pytest.mark.interop

OUTPUTS = ("y", "y_scale", "y_zero_point")
SHAPES = ((), (1,), (7,), (3, 5), (2, 3, 4), (64, 33))


def inputs(rng: np.random.Generator) -> Iterator[Array]:
    for shape, low, high in itertools.product(
        SHAPES, (-300.0, -1.0, -1e-30, 0.0, 3.0), (-0.5, 0.0, 1e-40, 2.0, 1e30, 255.0)
    ):
        yield rng.uniform(min(low, high), max(low, high), shape).astype(np.float32)
    for value in (0.0, -0.0, 1.0, -1.0, 255.0, 1e-45, 1e-38, 3.4e38, -3.4e38):
        yield np.full((5,), value, np.float32)
    # Ties of x / s, and of the zero point.
    yield np.arange(-255, 256).astype(np.float32) / 2
    yield np.array([-0.5, 254.5, 0.5, 1.5], np.float32)
    yield np.array([-127.5, 127.5, 0.5, 1.5, 2.5], np.float32)
    for odd in (np.inf, -np.inf, 3.4e38):
        yield np.array([1.0, -2.0, odd, -3.4e38, 0.0], np.float32)
    # NaN alone, in what is left of the vectors, and in a vector behind, before and between numbers.
    for size, places in ((1, [0]), (4, [1]), (8, [4]), (9, [8]), (40, [3, 35]), (1000, [999]), (64, range(64))):
        x = np.arange(size, 0, -1).astype(np.float32)
        x[list(places)] = np.nan
        yield x


def model(opset: int, shape: tuple[int, ...]) -> Any:
    helper, proto = onnx.helper, onnx.TensorProto
    types = (proto.UINT8, proto.FLOAT, proto.UINT8)
    graph = helper.make_graph(
        [helper.make_node("DynamicQuantizeLinear", ["x"], list(OUTPUTS))],
        "g",
        [helper.make_tensor_value_info("x", proto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, of, None) for name, of in zip(OUTPUTS, types, strict=True)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(made, strict_mode=True, check_type=True))
    return made


def test_dynamic_quantize_linear() -> None:
    tallies = {IMPLEMENTATION: Tally(systems.ONNXRUNTIME), "reference": Tally(systems.ONNX_REFERENCE)}
    for opset, x in itertools.product((11, 21), inputs(np.random.default_rng(51))):
        node = model(opset, x.shape)
        session = ort.InferenceSession(node.SerializeToString(), session_options(), providers=["CPUExecutionProvider"])
        with np.errstate(all="ignore"):
            theirs = {
                IMPLEMENTATION: session.run(None, {"x": x}),
                "reference": ReferenceEvaluator(node).run(None, {"x": x}),
            }
        for name, expected in theirs.items():
            given = {"x": tensor("f32", x)}
            if np.isnan(x).any():
                with pytest.raises(PreconditionError) as caught:
                    run("onnx.DynamicQuantizeLinear", given, opset=opset, implementation=name)
                assert caught.value.index == np.argmax(np.isnan(x))
                assert name == IMPLEMENTATION or np.isnan(expected[1]).all()
                continue
            found = run("onnx.DynamicQuantizeLinear", given, opset=opset, implementation=name)
            pairs = [(found[each], np.asarray(value)) for each, value in zip(OUTPUTS, expected, strict=True)]
            seen = [(ours.ravel()[:8], others.ravel()[:8]) for ours, others in pairs]
            shown = f"{name} opset {opset}: {x.ravel()[:8]}, ours and theirs {seen}"
            equal, elements = all(same(a, b) for a, b in pairs), sum(a.size for a, _ in pairs)
            tallies[name].add("onnx.DynamicQuantizeLinear", 11, equal, shown, elements)
    for tally in tallies.values():
        tally.finish(300)


def test_a_nan_makes_the_scale_depend_on_the_threads() -> None:
    """Why a NaN is refused: it erases what its vector lane held before it, and each thread begins with new lanes."""
    x = np.ones(1 << 22, np.float32)
    x[4], x[x.size - 28] = 9.0, np.nan
    assert x.size % 32 == 0  # four vectors of eight lanes: both stand in the same one
    node = model(11, x.shape).SerializeToString()
    scales = []
    for threads in (1, 2):
        options = session_options()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(node, options, providers=["CPUExecutionProvider"])
        scales.append(float(session.run(["y_scale"], {"x": x})[0]))
    assert scales[0] != scales[1]
