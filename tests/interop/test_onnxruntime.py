"""Profile `onnx` or `onnx_1_32` against onnxruntime: QuantizeLinear and DequantizeLinear of the CPU provider, live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.interop import traps
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile
from tests.interop.onnxruntime_version import PROFILE
from tests.interop.quantized_case import (
    Case,
    parameter_counts,
    per_stored_tensor,
    per_tensor,
    spread_parameters,
    zero_points,
)
from tests.interop.seed_of_the_day import generator

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.interop.onnxruntime_linear import run

pytestmark = pytest.mark.interop

Array = NDArray[Any]

INTEGERS = ("i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16")
FLOATS = ("f8E4M3FN", "f8E5M2")
"""Those that are storage in an MLIR type."""
SCALES = {"f32": (0.0237, 0.5, 1.0, 3e-39, 1e-12, 3e37), "f16": (0.0237, 0.5, 6e-8, 3.0, 60000.0)}
AXES = (((26, 4001), 0, None), ((31, 40, 101), 1, None), ((4001, 26), 1, None))
GRANULARITIES = (("per_axis", "sub_channel"), ("per_axis",))
"""Of integers, and of small floats: MLIR's types have blocks for integers only."""
# Even and odd counts; blocks of one element, longer than their dimension, along an axis with nothing or much behind it.
BLOCKS = (
    ((3, 4000, 9), 1, 32), ((50, 2100), 1, 32), ((2, 3, 17011), 2, 128), ((1000, 101), 0, 3), ((101, 33), 1, 1),
    ((101, 33), 1, 7), ((7, 99, 1), 1, 4), ((1, 3, 401), 0, 2), ((101, 15), 1, 17), ((101, 16), 0, 200),
)  # fmt: skip


def cases(
    vector: Callable[[str, str, float, int], Case],
    storage: str,
    expressed: str,
    rng: np.random.Generator,
    *,
    symmetric: bool = False,
) -> list[Case]:
    """Per tensor, along each axis, and in blocks (which MLIR's types have for integers only)."""
    found = [
        vector(storage, expressed, scale, z)
        for scale in SCALES[expressed]
        for z in zero_points(storage, symmetric=symmetric)
    ]
    for shape, axis, block in [*AXES, *(() if storage.startswith("f") else BLOCKS)]:
        counts = parameter_counts(shape, axis, block)
        parameters = spread_parameters(counts, storage, expressed, rng, symmetric=symmetric)
        found.append(Case(shape, storage, expressed, *parameters, axis, block))
    return found


@pytest.mark.parametrize("expressed", ["f32", "f16"])
@pytest.mark.parametrize("storage", INTEGERS)
def test_quantize(storage: str, expressed: str) -> None:
    rng = np.random.default_rng(31)
    comparison = Comparison(
        f"onnxruntime quantize {expressed} to {storage}", systems.ONNXRUNTIME, profile(PROFILE, "quantize")
    )
    for case in cases(per_tensor, storage, expressed, rng):
        source = case.real_data(rng)
        comparison.add(case, source, case.quantized(source, PROFILE), run("QuantizeLinear", case, source))
    comparison.finish(1_900_000)


@pytest.mark.parametrize("expressed", ["f32", "f16"])
@pytest.mark.parametrize("storage", FLOATS)
def test_quantize_to_small_floats(storage: str, expressed: str) -> None:
    rng = np.random.default_rng(33)
    comparison = Comparison(
        f"onnxruntime quantize {expressed} to {storage}", systems.ONNXRUNTIME, profile(PROFILE, "quantize")
    )
    for case in cases(per_tensor, storage, expressed, rng):
        source = case.real_data(rng)
        for saturate in (True, False):
            theirs = run("QuantizeLinear", case, source, saturate=saturate)
            comparison.add(case, source, case.quantized(source, PROFILE, saturate=saturate), theirs)
    comparison.finish(1_800_000)


@pytest.mark.parametrize("expressed", ["f32", "f16"])
@pytest.mark.parametrize("storage", [*INTEGERS, "i32", *FLOATS])
def test_dequantize(storage: str, expressed: str) -> None:
    rng = np.random.default_rng(32)
    comparison = Comparison(
        f"onnxruntime dequantize {storage} to {expressed}", systems.ONNXRUNTIME, profile(PROFILE, "dequantize")
    )
    for case in cases(per_stored_tensor, storage, expressed, rng, symmetric=storage == "i32"):
        source = case.stored_data(rng)
        comparison.add(case, source, case.dequantized(source, PROFILE), run("DequantizeLinear", case, source))
    comparison.finish(300_000)


@pytest.mark.parametrize("expressed", ["f32", "f16"])
@pytest.mark.parametrize("storage", [*INTEGERS, *FLOATS])
def test_quantize_traps(storage: str, expressed: str) -> None:
    rng = generator(34)
    comparison = Comparison(
        f"onnxruntime quantize {expressed} to {storage}", systems.ONNXRUNTIME, profile(PROFILE, "quantize")
    )
    for case, source in traps.reals(storage, expressed, rng, granularities=GRANULARITIES[storage in FLOATS]):
        comparison.add(case, source, case.quantized(source, PROFILE), run("QuantizeLinear", case, source))
    comparison.finish(10_000)


@pytest.mark.parametrize("expressed", ["f32", "f16"])
@pytest.mark.parametrize("storage", [*INTEGERS, "i32", *FLOATS])
def test_dequantize_traps(storage: str, expressed: str) -> None:
    rng = generator(35)
    comparison = Comparison(
        f"onnxruntime dequantize {storage} to {expressed}", systems.ONNXRUNTIME, profile(PROFILE, "dequantize")
    )
    granularities = GRANULARITIES[storage in FLOATS]
    for case, source in traps.stored(storage, expressed, rng, granularities=granularities, symmetric=storage == "i32"):
        comparison.add(case, source, case.dequantized(source, PROFILE), run("DequantizeLinear", case, source))
    comparison.finish(10_000)
