"""What replaces a profile's own rounding and its NaN, and stochastic rounding, which depends on its seed alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from requant.convert.quantize import NanPolicy, plan_quantize
from requant.convert.quantize_plans import ROUNDINGS
from requant.errors import PreconditionError, UnsupportedError
from requant.mlir import parse_type
from requant.profiles import PROFILES, Operation, Rounding
from tests.oracles import quantization as oracle
from tests.support.drawn_types import tensor
from tests.support.float_samples import around_ties

HALF = Fraction(1, 2)
RULES: dict[Rounding, Callable[[Fraction], int]] = {
    Rounding.NEAREST_EVEN: oracle.nearest_even,
    Rounding.NEAREST_AWAY: oracle.nearest_away,
    Rounding.NEAREST_UP: oracle.nearest_up,
    Rounding.NEAREST_DOWN: lambda value: math.ceil(value - HALF),
    Rounding.TOWARD_ZERO: int,
    Rounding.FLOOR: math.floor,
    Rounding.CEILING: math.ceil,
}


def drawn(seed: int, index: int) -> int:
    """32 bits for an element: SplitMix64's finalizer of seed + (index + 1) * 0x9E3779B97F4A7C15, the upper half."""
    mask = (1 << 64) - 1
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return (z ^ (z >> 31)) >> 32


@pytest.mark.parametrize("rounding", RULES)
@pytest.mark.parametrize("profile", ["onnx", "stablehlo"])
@pytest.mark.parametrize(("scale", "zero_point"), [(1.0, 3), (0.0237, -2), (0.1, 0)])
def test_roundings(profile: str, rounding: Rounding, scale: float, zero_point: int) -> None:
    s = float(np.float32(scale))
    x = around_ties(s, zero_point, -128, 127, np.random.default_rng(21))
    plan = plan_quantize(
        tensor(f"tensor<{x.size}xf32>"),
        parse_type(f"!quant.uniform<i8:f32, {scale:.17e}:{zero_point}>"),
        profile,
        rounding=rounding,
    )
    stored = np.empty(x.size, np.int8)
    report = plan.run(x, stored)
    assert report.rounding == rounding
    before = profile == "stablehlo"
    expected = []
    for value in x:
        quotient = oracle.divide_f32(float(value), s)
        exact = Fraction(oracle.add_f32(quotient, zero_point) if before else quotient)
        expected.append(min(max(RULES[rounding](exact) + (0 if before else zero_point), -128), 127))
    assert stored.tolist() == expected


def test_every_rounding_is_tested() -> None:
    assert set(ROUNDINGS) == {*RULES, Rounding.STOCHASTIC}


def test_stochastic_rounding_is_the_stated_function_of_seed_and_index() -> None:
    x = np.random.default_rng(22).normal(0, 20, 5000).astype(np.float32)
    types = tensor("tensor<5000xf32>"), parse_type("!quant.uniform<i8:f32, 1.0:5>")
    for seed in (0, 1, 2**63 - 1):
        plan = plan_quantize(*types, "onnx", rounding=Rounding.STOCHASTIC, seed=seed)
        stored = np.empty(x.size, np.int8)
        plan.run(x, stored)
        expected = []
        for index, value in enumerate(x.tolist()):
            whole = math.floor(value)
            up = drawn(seed, index) < (Fraction(value) - whole) * 2**32
            expected.append(min(max(whole + up + 5, -128), 127))
        assert stored.tolist() == expected
        for piece in (1, 999):
            again, counts = np.empty_like(stored), plan.new_counts()
            for start in range(0, x.size, piece):
                plan.step(x[start : start + piece], again[start : start + piece], start, counts)
            assert again.tolist() == stored.tolist()


def test_stochastic_rounding_is_unbiased() -> None:
    """A tenth of the elements rounds up: 200,000 draws stay within five standard deviations."""
    count = 200_000
    x = np.full(count, 2.1, np.float32)
    plan = plan_quantize(
        tensor(f"tensor<{count}xf32>"),
        parse_type("!quant.uniform<i8:f32, 1.0>"),
        rounding=Rounding.STOCHASTIC,
        seed=7,
    )
    stored = np.empty(count, np.int8)
    plan.run(x, stored)
    assert set(stored.tolist()) == {2, 3}
    share = float((stored == 3).mean())
    assert abs(share - 0.1) < 5 * math.sqrt(0.09 / count)


@pytest.mark.parametrize(
    "profile",
    [
        name
        for name, profile in PROFILES.items()
        if Operation.QUANTIZE in profile.operations and "i8" in profile.operations[Operation.QUANTIZE].storages
    ],
)
@pytest.mark.parametrize(("nan", "expected"), [(NanPolicy.LOWEST, -128), (NanPolicy.ZERO_POINT, 7)])
def test_nan_policies(profile: str, nan: NanPolicy, expected: int) -> None:
    plan = plan_quantize(tensor("tensor<3xf32>"), parse_type("!quant.uniform<i8:f32, 0.5:7>"), profile, nan=nan)
    stored = np.empty(3, np.int8)
    assert plan.run(np.array([0.0, np.nan, 1.0], np.float32), stored).nan == 1
    assert stored.tolist() == [7, expected, 9]


@pytest.mark.parametrize("profile", ["onnx", "litert", "torch"])
def test_nan_as_an_error_names_the_first(profile: str) -> None:
    plan = plan_quantize(
        tensor("tensor<4xf32>"), parse_type("!quant.uniform<i8:f32, 0.5:7>"), profile, nan=NanPolicy.ERROR
    )
    with pytest.raises(PreconditionError) as caught:
        plan.run(np.array([0.0, 1.0, np.nan, np.nan], np.float32), np.empty(4, np.int8))
    assert caught.value.index == 2


def test_roundings_of_requantize_are_none_of_quantize() -> None:
    with pytest.raises(UnsupportedError, match="double"):
        plan_quantize(
            tensor("tensor<4xf32>"), parse_type("!quant.uniform<i8:f32, 0.5>"), "onnx", rounding=Rounding.DOUBLE
        )
