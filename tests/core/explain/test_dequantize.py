"""Dequantize, explained: under every rule the steps end in what the kernels compute."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from core.errors import RequantError
from core.explain.dequantize import dequantize_explainer
from core.profiles import PROFILES, Operation
from tests.core.explain.test_quantize import TABLE
from tests.support.cases import EXHAUSTIVE
from tests.support.drawn_types import EXPRESSED, draw_type, drawable, stored_numbers, tensor

ROUNDS = 20 if EXHAUSTIVE else 1
DEFINING = [name for name, each in PROFILES.items() if Operation.DEQUANTIZE in each.operations and name != "quantile"]


@pytest.mark.parametrize("name", DEFINING)
def test_every_profile(name: str) -> None:
    rng, done = np.random.default_rng(zlib.crc32(name.encode())), 0
    rule = PROFILES[name].operations[Operation.DEQUANTIZE]
    for storage, expressed, granularity in [*drawable(rule.storages, rule.expressed, rule.granularities)] * ROUNDS:
        drawn = draw_type(rng, storage, expressed, granularity, zero=storage in rule.symmetric)
        try:
            explainer = dequantize_explainer(drawn.quantized, None, name)
        except RequantError:
            continue
        done += len(explainer.run(stored_numbers(rng, explainer.plan, storage)).elements)
    assert done > 30


@pytest.mark.parametrize("expressed", EXPRESSED)
def test_tables(expressed: str) -> None:
    quantized = tensor(f"tensor<8x!quant.uniform<{TABLE}:{expressed}, 0.1:1>>")
    explainer = dequantize_explainer(quantized, None, "quantile")
    low, high = explainer.plan.input_bounds or (0, 0)
    explainer.run(np.arange(low, high + 1).astype(explainer.plan.input_dtype))


def test_what_two_roundings_give() -> None:
    # LiteRT multiplies in f64 and rounds once more; the others round the difference to f32 first.
    quantized = tensor("tensor<1x!quant.uniform<i32:f32, 0.1>>")
    steps = {
        name: [(step.step.value, step.value) for step in explained.steps[1:]]
        for name in ("litert", "stablehlo")
        for explained in dequantize_explainer(quantized, None, name).run(np.array([16777217], np.int32)).elements
    }
    assert steps["litert"] == [
        ("subtract_zero_point", "16777217"), ("multiply", "1677721.7250000015"), ("convert", "1677721.8"),
    ]  # fmt: skip
    assert steps["stablehlo"] == [
        ("subtract_zero_point", "16777217"), ("convert", "16777216.0"), ("multiply", "1677721.6"),
    ]  # fmt: skip
