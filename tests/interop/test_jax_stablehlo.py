"""Profile `stablehlo` against StableHLO's interpreter, which jaxlib carries.

For f32 the quantized operators are lowered by StableHLO's own pass. The pass takes no other expressed type; for those
the operators of the specification's formula are written out, and the interpreter computes them in that type.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.interop import traps
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import operator, profile
from tests.interop.quantized_case import (
    Case,
    per_stored_tensor,
    per_tensor,
    spread_parameters,
    zero_points,
)
from tests.interop.seed_of_the_day import generator
from tests.interop.stablehlo_quantized import (
    dequantized_by_formula,
    dequantized_by_pass,
    quantized_by_formula,
    quantized_by_pass,
)
from tests.interop.stablehlo_upstream import loaded

pytestmark = pytest.mark.interop

STORAGES = ("i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16", "i32", "u32")


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with loaded():
        yield


def along_last_axis(storage: str, rng: np.random.Generator) -> list[Case]:
    """The lowering broadcasts parameters along the last axis only."""
    return [
        Case(shape, storage, "f32", *spread_parameters((shape[-1],), storage, "f32", rng), len(shape) - 1)
        for shape in ((15_000, 7), (2, 40, 1303))
    ]


QUANTIZE = (profile("stablehlo", "quantize"), operator("stablehlo.uniform_quantize"))
DEQUANTIZE = (profile("stablehlo", "dequantize"), operator("stablehlo.uniform_dequantize"))


@pytest.mark.parametrize("storage", STORAGES)
def test_quantize(storage: str) -> None:
    rng = np.random.default_rng(51)
    comparison = Comparison(f"StableHLO interpreter quantize f32 to {storage}", systems.STABLEHLO, *QUANTIZE)
    points = zero_points(storage)
    cases = [per_tensor(storage, "f32", *each) for each in ((0.0237, points[-2]), (3e-39, points[0]))]
    for case in [*cases, along_last_axis(storage, rng)[storage[0] == "u"]]:
        source = case.real_data(rng)
        comparison.add(case, source, case.quantized(source, "stablehlo"), quantized_by_pass(case, source))
    comparison.finish(300_000)


@pytest.mark.parametrize("storage", STORAGES)
def test_dequantize(storage: str) -> None:
    rng = np.random.default_rng(52)
    comparison = Comparison(f"StableHLO interpreter dequantize {storage} to f32", systems.STABLEHLO, *DEQUANTIZE)
    cases = [per_stored_tensor(storage, "f32", scale, z) for scale in (0.0237, 3e-39) for z in zero_points(storage)]
    for case in [*cases, along_last_axis(storage, rng)[0]]:
        source = case.stored_data(rng)
        comparison.add(case, source, case.dequantized(source, "stablehlo"), dequantized_by_pass(case, source))
    comparison.finish(100_000)


@pytest.mark.parametrize("expressed", ["f16", "bf16", "f64"])
def test_quantize_in_the_expressed_type(expressed: str) -> None:
    rng = np.random.default_rng(53)
    comparison = Comparison(f"StableHLO interpreter quantize {expressed}", systems.STABLEHLO, *QUANTIZE)
    for storage in ("i4", "i8", "u8", "u16", "i32"):
        case = per_tensor(storage, expressed, 0.0237, zero_points(storage)[-2])
        source = case.real_data(rng)
        comparison.add(case, source, case.quantized(source, "stablehlo"), quantized_by_formula(case, source))
    comparison.finish(500_000)


@pytest.mark.parametrize("expressed", ["f16", "bf16", "f64"])
def test_dequantize_in_the_expressed_type(expressed: str) -> None:
    rng = np.random.default_rng(54)
    comparison = Comparison(f"StableHLO interpreter dequantize {expressed}", systems.STABLEHLO, *DEQUANTIZE)
    for storage in STORAGES:
        for z in zero_points(storage):
            case = per_stored_tensor(storage, expressed, 0.0237, z)
            source = case.stored_data(rng)
            comparison.add(case, source, case.dequantized(source, "stablehlo"), dequantized_by_formula(case, source))
    comparison.finish(500_000)


@pytest.mark.parametrize("storage", STORAGES)
def test_quantize_traps(storage: str) -> None:
    rng = generator(55)
    comparison = Comparison(f"StableHLO interpreter quantize f32 to {storage}", systems.STABLEHLO, *QUANTIZE)
    for case, source in traps.reals(storage, "f32", rng, granularities=()):
        comparison.add(case, source, case.quantized(source, "stablehlo"), quantized_by_pass(case, source))
    comparison.finish(10_000)


@pytest.mark.parametrize("storage", STORAGES)
def test_dequantize_traps(storage: str) -> None:
    rng = generator(56)
    comparison = Comparison(f"StableHLO interpreter dequantize {storage} to f32", systems.STABLEHLO, *DEQUANTIZE)
    for case, source in traps.stored(storage, "f32", rng, granularities=()):
        comparison.add(case, source, case.dequantized(source, "stablehlo"), dequantized_by_pass(case, source))
    comparison.finish(10_000)


@pytest.mark.parametrize("expressed", ["f16", "bf16"])
def test_traps_in_the_expressed_type(expressed: str) -> None:
    rng = generator(57)
    comparison = Comparison(f"StableHLO interpreter {expressed} to i8", systems.STABLEHLO, *QUANTIZE)
    for case, source in traps.reals("i8", expressed, rng, granularities=()):
        comparison.add(case, source, case.quantized(source, "stablehlo"), quantized_by_formula(case, source))
    comparison.finish(10_000)
    comparison = Comparison(f"StableHLO interpreter i8 to {expressed}", systems.STABLEHLO, *DEQUANTIZE)
    for case, source in traps.stored("i8", expressed, rng, granularities=()):
        comparison.add(case, source, case.dequantized(source, "stablehlo"), dequantized_by_formula(case, source))
    comparison.finish(15_000)
