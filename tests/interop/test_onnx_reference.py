"""Profile `onnx_reference` against the ReferenceEvaluator of the onnx package, run live."""

from __future__ import annotations

import numpy as np
import pytest

from tests.interop import traps
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile
from tests.interop.quantized_case import (
    Case,
    parameter_counts,
    per_stored_tensor,
    per_tensor,
    spread_parameters,
    zero_points,
)
from tests.interop.seed_of_the_day import generator

pytest.importorskip("onnx.reference")

from tests.interop.onnx_reference_linear import FLOATS, run

pytestmark = pytest.mark.interop

INTEGERS = ("i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16")
SCALES = {"f32": (0.0237, 3e-39, 3e37), "f16": (0.0237, 6e-8), "bf16": (0.0237, 1e-12)}
LAYOUTS = (
    ((26, 4001), 0, None), ((31, 40, 101), 1, None), ((4001, 26), 1, None),
    ((3, 4000, 9), 1, 32), ((50, 2100), 1, 32), ((1000, 101), 0, 3),
)  # fmt: skip

GRANULARITIES = (("per_axis", "sub_channel"), ("per_axis",))
"""Of integers, and of small floats."""


def laid_out(storage: str, expressed: str, rng: np.random.Generator, *, symmetric: bool = False) -> list[Case]:
    """Along axes, and in blocks (which MLIR's types have for integers only)."""
    return [
        Case(
            shape,
            storage,
            expressed,
            *spread_parameters(parameter_counts(shape, axis, block), storage, expressed, rng, symmetric=symmetric),
            axis,
            block,
        )
        for shape, axis, block in LAYOUTS
        if block is None or storage not in FLOATS
    ]


@pytest.mark.parametrize("expressed", SCALES)
@pytest.mark.parametrize("storage", [*INTEGERS, *FLOATS])
def test_quantize(storage: str, expressed: str) -> None:
    rng = np.random.default_rng(71)
    comparison = Comparison(
        f"onnx reference quantize {expressed} to {storage}",
        systems.ONNX_REFERENCE,
        profile("onnx_reference", "quantize"),
    )
    cases = [per_tensor(storage, expressed, scale, z) for scale in SCALES[expressed] for z in zero_points(storage)]
    for case in [*cases, *laid_out(storage, expressed, rng)]:
        source = case.real_data(rng)
        theirs = run("QuantizeLinear", case, source)
        comparison.add(case, source, case.quantized(source, "onnx_reference"), theirs)
    comparison.finish(600_000)


@pytest.mark.parametrize("expressed", SCALES)
@pytest.mark.parametrize("storage", [*INTEGERS, "i32", *FLOATS])
def test_dequantize(storage: str, expressed: str) -> None:
    rng = np.random.default_rng(72)
    comparison = Comparison(
        f"onnx reference dequantize {storage} to {expressed}",
        systems.ONNX_REFERENCE,
        profile("onnx_reference", "dequantize"),
    )
    cases = [
        per_stored_tensor(storage, expressed, scale, z) for scale in SCALES[expressed] for z in zero_points(storage)
    ]
    for case in [*cases, *laid_out(storage, expressed, rng)]:
        source = case.stored_data(rng)
        theirs = run("DequantizeLinear", case, source)
        comparison.add(case, source, case.dequantized(source, "onnx_reference"), theirs)
    comparison.finish(300_000)


@pytest.mark.parametrize("expressed", SCALES)
@pytest.mark.parametrize("storage", [*INTEGERS, *FLOATS])
def test_quantize_traps(storage: str, expressed: str) -> None:
    rng = generator(73)
    comparison = Comparison(
        f"onnx reference quantize {expressed} to {storage}",
        systems.ONNX_REFERENCE,
        profile("onnx_reference", "quantize"),
    )
    for case, source in traps.reals(storage, expressed, rng, granularities=GRANULARITIES[storage in FLOATS]):
        theirs = run("QuantizeLinear", case, source)
        comparison.add(case, source, case.quantized(source, "onnx_reference"), theirs)
    comparison.finish(10_000)


@pytest.mark.parametrize("expressed", SCALES)
@pytest.mark.parametrize("storage", [*INTEGERS, "i32", *FLOATS])
def test_dequantize_traps(storage: str, expressed: str) -> None:
    rng = generator(74)
    comparison = Comparison(
        f"onnx reference dequantize {storage} to {expressed}",
        systems.ONNX_REFERENCE,
        profile("onnx_reference", "dequantize"),
    )
    for case, source in traps.stored(storage, expressed, rng, granularities=GRANULARITIES[storage in FLOATS]):
        theirs = run("DequantizeLinear", case, source)
        comparison.add(case, source, case.dequantized(source, "onnx_reference"), theirs)
    comparison.finish(10_000)
