"""Dequantize, explained: under every rule the steps end in what the kernels compute."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from requant.convert.explain.dequantize import dequantize_explainer
from requant.errors import RequantError
from requant.profiles import PROFILES, Operation
from tests.core.convert.explain.test_quantize import TABLE
from tests.support.drawn_types import EXPRESSED, draw_type, drawable, stored_numbers, tensor

DEFINING = [name for name, each in PROFILES.items() if Operation.DEQUANTIZE in each.operations and name != "quantile"]


@pytest.mark.parametrize("name", DEFINING)
def test_every_profile(name: str) -> None:
    rng, done = np.random.default_rng(zlib.crc32(name.encode())), 0
    rule = PROFILES[name].operations[Operation.DEQUANTIZE]
    for storage, expressed, granularity in drawable(rule):
        drawn = draw_type(rng, storage, expressed, granularity, zero=storage in rule.symmetric)
        try:
            explainer = dequantize_explainer(drawn.quantized, None, name)
        except RequantError:
            continue
        done += len(explainer.run(stored_numbers(rng, explainer.plan, storage)).elements)
    assert done > 200


@pytest.mark.parametrize("expressed", EXPRESSED)
def test_tables(expressed: str) -> None:
    quantized = tensor(f"tensor<8x!quant.uniform<{TABLE}:{expressed}, 0.1:1>>")
    explainer = dequantize_explainer(quantized, None, "quantile")
    low, high = explainer.plan.input_bounds or (0, 0)
    explainer.run(np.arange(low, high + 1).astype(explainer.plan.input_dtype))


@pytest.mark.parametrize(
    ("name", "expressed", "scale", "q", "formula", "values"),
    [
        # The integer is a tie of bf16 only after it was rounded to f32, and so goes down.
        (
            "torch_decomposed",
            "bf16",
            1.0,
            538968065,
            "bf16(f32(q))",
            ["1.0", "536870912.0", "536870912.0", "536870912.0"],
        ),
        # The product would be a tie of f16 if it were rounded to f32 first, and go up.
        ("onnx_reference", "f16", 1.0009765625, 50175, "q - z", ["1.001", "50175.0", "50223.9990234375", "50208.0"]),
    ],
)
def test_the_way_by_f32(name: str, expressed: str, scale: float, q: int, formula: str, values: list[str]) -> None:
    explainer = dequantize_explainer(tensor(f"tensor<1x!quant.uniform<i32:{expressed}, {scale!r}>>"), None, name)
    (explained,) = explainer.run(np.array([q], np.int32)).elements
    assert [step.value for step in explained.steps] == values
    assert explained.steps[1].formula == formula


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
