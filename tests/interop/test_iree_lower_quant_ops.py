"""The profile `mlir` in a compiler: IREE compiles and runs what lower-quant-ops makes of casts; equal bits.

The pass is ours, and equal to MLIR's to the letter (test_tensorflow_passes.py). Values whose conversion to an integer
is poison there are errors here, and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from requant.mlir import parse_type
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import operator, profile
from tests.interop.quantized_case import Case, bounds
from tests.interop.seed_of_the_day import generator
from tests.support.operator_calls import run, tensor

pytest.importorskip("iree.compiler", reason="PyPI: iree-base-compiler")
pytest.importorskip("iree.runtime", reason="PyPI: iree-base-runtime")

from tests.interop.iree_casts import in_iree, within

pytestmark = pytest.mark.interop

SIZE = 4096
STORAGES = ("i8", "u8", "i16")


def cases(rng: np.random.Generator, storage: str) -> Sequence[Case]:
    low, high = bounds(storage)
    scales = (0.0237, 1.0, 0.5, float(np.nextafter(np.float32(1), np.float32(2))), 1e-30)
    singles = [
        Case((SIZE,), storage, "f32", np.array(scale), np.array(zero)) for scale in scales for zero in (0, 7, high, low)
    ]
    drawn = np.exp2(rng.uniform(-20, 20, 8)).astype(np.float32).astype(np.float64)
    return [*singles, Case((SIZE // 8, 8), storage, "f32", drawn, rng.integers(low, high + 1, 8), 1)]


@pytest.mark.parametrize("storage", STORAGES)
def test_qcast(storage: str) -> None:
    rng = generator(311)
    comparison = Comparison(
        f"IREE qcast f32 to {storage}", systems.IREE, profile("mlir", "quantize"), operator("mlir.quant.qcast")
    )
    low, high = bounds(storage)
    for case in cases(rng, storage):
        scale, zero = (case.for_each(each).reshape(case.shape) for each in (case.scales, case.zero_points))
        # Quarters of steps, ties among them.
        x = ((rng.integers(4 * low, 4 * high + 1, case.shape) / 4 - zero) * scale).astype(np.float32)
        x = within(case, x)
        theirs = in_iree(case, "qcast", x).view(case.dtype)
        attributes = {"output_type": parse_type(case.element)}
        (ours,) = run("mlir.quant.qcast", {"input": tensor("f32", x)}, attributes).values()
        comparison.add(case, x, ours, theirs)
    comparison.finish(60_000)


@pytest.mark.parametrize("storage", STORAGES)
def test_dcast(storage: str) -> None:
    """Every stored byte."""
    rng = generator(312)
    comparison = Comparison(
        f"IREE dcast {storage} to f32", systems.IREE, profile("mlir", "dequantize"), operator("mlir.quant.dcast")
    )
    low, high = bounds(storage)
    for case in cases(rng, storage):
        q = np.resize(np.arange(low, high + 1), SIZE).astype(case.dtype).reshape(case.shape)
        theirs = in_iree(case, "dcast", q.view(f"i{q.itemsize}"))
        attributes = {"output_type": parse_type("f32")}
        (ours,) = run("mlir.quant.dcast", {"input": tensor(case.element, q)}, attributes).values()
        comparison.add(case, q, ours, theirs)
    comparison.finish(60_000)
