"""add against DequantizeLinear, Add and QuantizeLinear, of onnxruntime and of the reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from requant.integer.add import plan_add
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile as row
from tests.interop.integer.quantized_tensors import DTYPES, Array, Quantized, per_tensor
from tests.interop.onnxruntime_version import PROFILE

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.interop.integer.onnx_graphs import addition, with_onnxruntime, with_reference

pytestmark = pytest.mark.interop

SCALES = ((0.5, 0.5, 0.5), (0.5, 0.25, 1.0), (0.1, 0.3, 0.2), (0.02, 0.9, 0.9), (0.0371, 0.0113, 0.0254))


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
        comparison.add(sides, a, ours(sides, a, b, profile), system(addition(sides), {"a": a, "b": b}))
    comparison.finish(600_000)
