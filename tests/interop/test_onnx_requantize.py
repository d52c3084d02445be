"""Requantize of the profiles `onnx` and `onnx_reference`: QLinearMatMul by a matrix of one 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.convert.requantize import plan_requantize
from tests.interop import traps
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile, scheme
from tests.interop.onnxruntime_version import PROFILE
from tests.interop.quantized_case import Case
from tests.interop.seed_of_the_day import generator

pytest.importorskip("onnx")
reference: Any = pytest.importorskip("onnx.reference")
ort: Any = pytest.importorskip("onnxruntime")

from tests.interop.onnx_nodes import column_inputs, one_product  # noqa: E402

pytestmark = pytest.mark.interop

Array = NDArray[Any]


def ratios(rng: np.random.Generator) -> list[tuple[float, float]]:
    """Scales of input and output whose quotients are special f32, their neighbours, and random."""
    found = [(each, 1.0) for exponent in range(-12, 8) for each in traps.beside(2.0**exponent, "f32")]
    random = np.exp2(rng.uniform(-6, 6, (2, 100))).astype(np.float32).astype(np.float64)
    return found + list(zip(*random.tolist(), strict=True))


@pytest.mark.parametrize("storage", ["i8", "u8"])
def test_requantize(storage: str) -> None:
    """Every stored number; onnxruntime takes the types of both sides to be equal."""
    rng = generator(75)
    model = one_product(storage)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    evaluator = reference.ReferenceEvaluator(model)
    runs = {PROFILE: session.run, "onnx_reference": evaluator.run}
    rows = {PROFILE: (systems.ONNXRUNTIME, "onnxruntime"), "onnx_reference": (systems.ONNX_REFERENCE, "onnx_reference")}
    points = traps.zero_points(storage)
    for name, run in runs.items():
        system, used = rows[name]
        comparison = Comparison(f"{name} requantize {storage}", system, profile(name, "requantize"), scheme(used))
        for scale_in, scale_out in ratios(rng):
            z_in, z_out = (int(each) for each in rng.choice(points, 2))
            given = Case((256,), storage, "f32", np.array(scale_in), np.array(z_in))
            wanted = Case((256,), storage, "f32", np.array(scale_out), np.array(z_out))
            stored = given.stored_data(rng)
            plan = plan_requantize(given.tensor, wanted.tensor, name)
            ours = np.empty(stored.size, plan.output_dtype)
            plan.run(stored, ours)
            fed = column_inputs(stored, (scale_in, z_in), (scale_out, z_out))
            (theirs,) = run(None, fed)
            comparison.add((scale_in, z_in, scale_out, z_out), stored, ours, theirs[:, 0])
        comparison.finish(35_000)
