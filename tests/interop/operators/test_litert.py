"""QUANTIZE and DEQUANTIZE by LiteRT's names, against its reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from requant.mlir import parse_type
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import operator
from tests.interop.quantized_case import Case, bounds, zero_points
from tests.interop.seed_of_the_day import generator
from tests.support.operator_calls import run, tensor

pytest.importorskip("flatbuffers")
pytest.importorskip("ai_edge_litert")

from tests.interop import litert_models as models

pytestmark = pytest.mark.interop

STORAGES = ("i8", "u8", "i16")
SCALES = (0.0237, 1.0, 1 / 3, 2.0**-126)
SIZE = 4096


def cases(storage: str, *, symmetric: bool = False) -> list[tuple[Case, models.Operand]]:
    found = []
    for scale in SCALES:
        for zero in zero_points(storage, symmetric=symmetric):
            case = Case((SIZE,), storage, "f32", np.array(np.float64(np.float32(scale))), np.array(zero))
            found.append((case, models.Operand(storage, case.scales, case.zero_points)))
    return found


@pytest.mark.parametrize("storage", STORAGES)
def test_quantize(storage: str) -> None:
    rng = generator(321)
    comparison = Comparison(f"LiteRT QUANTIZE {storage}", systems.LITERT, operator("litert.QUANTIZE"))
    for case, stored in cases(storage):
        x = case.real_data(rng)
        attributes = {"output_type": parse_type(case.element)}
        (ours,) = run("litert.QUANTIZE", {"input": tensor("f32", x)}, attributes).values()
        model = models.one_operator(models.QUANTIZE, x.shape, models.Operand("f32"), stored)
        comparison.add(case, x, ours, models.run(model, x, models.REFERENCE))
    comparison.finish(16_000)


@pytest.mark.parametrize("storage", STORAGES)
def test_dequantize(storage: str) -> None:
    comparison = Comparison(f"LiteRT DEQUANTIZE {storage}", systems.LITERT, operator("litert.DEQUANTIZE"))
    low, high = bounds(storage)
    for case, stored in cases(storage, symmetric=storage == "i16"):
        q = np.resize(np.arange(low, high + 1), SIZE).astype(case.dtype)
        (ours,) = run("litert.DEQUANTIZE", {"input": tensor(case.element, q)}).values()
        model = models.one_operator(models.DEQUANTIZE, q.shape, stored, models.Operand("f32"))
        comparison.add(case, q, ours, models.run(model, q, models.REFERENCE))
    comparison.finish(16_000)
