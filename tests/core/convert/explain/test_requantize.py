"""Requantize, explained: under every rule and scheme the steps end in what the kernels compute."""

from __future__ import annotations

import zlib
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest

from requant.convert.explain.requantize import requantize_explainer
from requant.errors import ParameterError, PreconditionError, RequantError
from requant.mlir import parse_type
from requant.profiles import PROFILES, Operation
from requant.schemes import SCHEMES, Multiplier
from tests.support.cases import EXHAUSTIVE
from tests.support.drawn_types import GRANULARITIES, INTEGERS, draw_type, stored_numbers, tensor
from tests.support.near_ties import near_ties

ROUNDS = 5 if EXHAUSTIVE else 1
OUTPUTS = (
    "i8:f32, 0.25:-3", "u8:f32, 0.25:7", "i16:f32, 0.25", "i32<-2147483647:2147483640>:f32, 0.25:1", "u32:f32, 0.25:5"
)  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [name for name, each in PROFILES.items() if Operation.REQUANTIZE in each.operations])
def test_every_profile(name: str) -> None:
    rng, done = np.random.default_rng(zlib.crc32(name.encode())), 0
    rule = PROFILES[name].operations[Operation.REQUANTIZE]
    storages = [each for each in INTEGERS if each in rule.storages]
    for _ in range(40 * ROUNDS):
        source, target = (str(rng.choice(storages)) for _ in range(2))
        granularity, expressed = str(rng.choice(GRANULARITIES[:3])), str(rng.choice(rule.expressed))
        sides = [draw_type(rng, each, expressed, granularity, zero=rng.random() < 0.5) for each in (source, target)]
        try:
            explainer = requantize_explainer(sides[0].quantized, parse_type(sides[1].text), name)
            done += len(explainer.run(stored_numbers(rng, explainer.plan, source)).elements)
        except RequantError:
            continue
    assert done > 30


def accumulators(scheme: str, derived: bool) -> list[str]:
    if scheme == "xnnpack_cvt8":
        return ["i8"]
    return ["i8", "i32"] if derived else ["i8", "ui16", "i32", "i48"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("derived", "scheme"),
    list(product([True, False], SCHEMES)) if EXHAUSTIVE else list(zip(cycle([True, False]), SCHEMES)),
)
def test_every_scheme(scheme: str, derived: bool) -> None:
    rng, stated, done = np.random.default_rng(zlib.crc32(scheme.encode())), SCHEMES[scheme], 0
    for output in OUTPUTS * 2 * ROUNDS:
        drawn = np.exp2(rng.uniform(*((-7, 6) if scheme == "xnnpack_cvt8" else (-12, 4))))
        # Some have exact ties in floats too.
        factor = float(rng.choice([drawn, drawn, 0.5, 0.375, 1.5]))
        storage = str(rng.choice(accumulators(scheme, derived)))
        options: dict[str, Any] = {"scheme": scheme}
        element = f"!quant.uniform<{storage}:f32, {factor * 0.25!r}:{int(rng.integers(-3, 4))}>"
        try:
            multiplier = stated.derive_checked(factor)
            if not derived:
                element, options["multipliers"] = storage, [multiplier]
            given = tensor(f"tensor<24x{element}>")
            explainer = requantize_explainer(given, parse_type(f"!quant.uniform<{output}>"), "litert", **options)
        except ParameterError:
            continue
        dtype = explainer.plan.input_dtype
        low, high = explainer.plan.input_bounds or (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
        right = stated.right_shift(multiplier.shift)
        numbers = near_ties(rng, multiplier.multiplier, right, 24, (max(low, -(1 << 40)), min(high, 1 << 40)))
        try:
            done += len(explainer.run(np.array(numbers, dtype)).elements)
        except PreconditionError:
            # Most often for the bounds alone.
            inner = [number if abs(number) < 1 << 20 else 0 for number in numbers]
            done += len(explainer.run(np.array(inner, dtype)).elements)
    assert done > 100


def test_double_and_single_rounding() -> None:
    # 10 * f32(0.35) is just below 3.5, which the first of two roundings makes 3.5.
    found = {}
    for profile in ("litert", "litert_single_rounding"):
        explainer = requantize_explainer(
            tensor("tensor<1x!quant.uniform<i32:f32, 0.35>>"), parse_type("!quant.uniform<i8:f32, 1.0>"), profile
        )
        explained = explainer.run(np.array([10], np.int32)).elements[0]
        found[profile] = [(step.step.value, step.symbol, step.value, step.unrounded) for step in explained.steps[6:]]
    assert found["litert"] == [
        ("shift", "r", "32", None), ("subtract_zero_point", "v", "10", None), ("shift_left", "a", "10", None),
        ("high_multiply", "h", "7", "6.99999988079071044921875"), ("shift_right", "y", "4", "3.5"),
        ("add_zero_point", "t", "4", None), ("clamp", "q_out", "4", None),
    ]  # fmt: skip
    assert found["litert_single_rounding"] == [
        ("shift", "r", "32", None), ("subtract_zero_point", "v", "10", None),
        ("multiply", "p", "15032385280", None), ("shift_right", "y", "3", "3.499999940395355224609375"),
        ("add_zero_point", "t", "3", None), ("clamp", "q_out", "3", None),
    ]  # fmt: skip


def test_a_product_that_saturates() -> None:
    explainer = requantize_explainer(
        tensor("tensor<1xi32>"), parse_type("tensor<1xi32>"), "litert", [Multiplier(-(1 << 31), 0)]
    )
    (explained,) = explainer.run(np.array([-(1 << 31)], np.int32)).elements
    product = next(step for step in explained.steps if step.symbol == "h")
    assert (product.formula, product.value, product.unrounded) == (
        "min(floor((a * m + 2^30) / 2^31), 2^31 - 1)", "2147483647", "2147483648"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "output", "q", "result"),
    [
        # The sum with the zero point wraps.
        ("litert_single_rounding", "i32:f32, 0.5:1", (1 << 31) - 1, -(1 << 31)),
        # Bounds are those of f32, within the storage.
        ("stablehlo", "i32<-2147483647:2147483640>:f32, 0.25", -(1 << 31), -(1 << 31)),
        # An accumulator is dequantized, which Dequantize itself would not do.
        ("onednn", "i8:f32, 0.25:3", 10, 23),
    ],
)
def test_32_bits(name: str, output: str, q: int, result: int) -> None:
    given, type_ = tensor("tensor<1x!quant.uniform<i32:f32, 0.5>>"), parse_type(f"!quant.uniform<{output}>")
    (explained,) = requantize_explainer(given, type_, name).run(np.array([q], np.int32)).elements
    assert explained.result == result


def test_multipliers_of_a_caller() -> None:
    multipliers = [Multiplier(1 << 30, -3), Multiplier(1 << 30, -2)]
    explainer = requantize_explainer(
        tensor("tensor<2x3xi32>"), parse_type("tensor<2x3xi8>"), "litert", multipliers, axis=0
    )
    found = explainer.run(np.array([8, 24, 40, 8, 24, 40], np.int32))
    assert [each.parameter for each in found.elements] == [0, 0, 0, 1, 1, 1]
    assert [each.result for each in found.elements] == [1, 2, 3, 1, 3, 5]


def test_a_multiplier_that_is_rounded_to_f32_is_no_tie() -> None:
    source, target = (
        tensor("tensor<1x!quant.uniform<i8:f32, 0.0317:3>>"),
        parse_type("!quant.uniform<i8:f32, 0.123:-1>"),
    )
    found = requantize_explainer(source, target, scheme="tosa_inexact_round").run(np.array([1], np.int8))
    (factor,) = (step for step in found.elements[0].steps if step.formula == "f32(m) * 2^-shift")
    assert (factor.value, factor.unrounded) == ("0.2577235698699951", "0.257723577320575714111328125")
    assert not factor.tie
