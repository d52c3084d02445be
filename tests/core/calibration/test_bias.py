"""Bias scales and int32 bias: LiteRT's converter's own, and exact fractions for every rule."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from requant.calibration.bias import BIAS_RULES, bias_rule_named, bias_scales, quantize_bias
from requant.calibration.ranges import RangeOptions
from requant.errors import ParameterError, PreconditionError, RequantError, TypeFitError, UnknownNameError
from requant.mlir import parse_storage
from tests.oracles.quantization import f32, from_bits, nearest_away, nearest_even
from tests.oracles.ranges import f64
from tests.support.ranges import derive_range
from tests.vector_cases import load

F = Fraction
INT32 = (-(1 << 31), (1 << 31) - 1)


def test_converter_vectors() -> None:
    rule = bias_rule_named("litert")
    compared = 0
    for row in load("litert_converter")["biases"]:
        weights = np.array([from_bits(pattern) for pattern in row["weight_scales"]])
        scales = bias_scales(rule, from_bits(row["input_scale"]), weights)
        assert scales.tolist() == [from_bits(pattern) for pattern in row["bias_scales"]]
        values = np.array([from_bits(pattern) for pattern in row["bias"]], np.float32)
        assert quantize_bias(rule, values, scales).values.tolist() == row["quantized"]
        compared += values.size
    assert compared == 600


def test_converter_ranges() -> None:
    rows = load("litert_converter")["ranges"]
    assert len(rows) == 117
    for row in rows:
        ends = from_bits(row["min"]), from_bits(row["max"])
        options = RangeOptions(symmetric=row["symmetric"])
        found = derive_range("litert_converter", *ends, parse_storage(row["storage"]), options)
        assert (found.scales[0], found.zero_points[0]) == (from_bits(row["scale"]), row["zp"])


def expected(scheme: str, value: float, scale: float) -> int | None:
    """None: not defined."""
    if scheme == "litert":
        if scale == 0:
            return 0
        inverse = f32(1 / F(scale))
        if math.isinf(inverse):
            return None
        product = f32(F(value) * F(inverse))
        wanted = nearest_away(F(product)) if math.isfinite(product) else int(math.copysign(1 << 40, product))
        return min(max(wanted, 1 - (1 << 31)), INT32[1])
    if scheme == "onnxruntime":
        quotient = F(value) / F(scale) if scale else None
        return None if quotient is None else min(max(nearest_even(F(f64(quotient))), INT32[0]), INT32[1])
    if scale < 2.0**-149:
        return None
    inverse = f32(1 / F(f32(F(scale))))
    if math.isinf(inverse):
        # An infinite product saturates; 0 times infinity is NaN, which torch makes -2^31.
        return INT32[1] if value > 0 else INT32[0]
    product = f32(F(value) * F(inverse))
    wanted = nearest_even(F(product)) if math.isfinite(product) else int(math.copysign(1 << 40, product))
    return min(max(wanted, INT32[0]), INT32[1])


SCALES = st.floats(2.0**-30, 4, width=32) | st.sampled_from([1.0, 0.5, 2.0**-60, 2.0**60, 0.1, 3.0])
VALUES = (
    st.floats(-1e6, 1e6, width=32)
    | st.integers(-41, 41).map(lambda count: count / 2)
    | st.sampled_from([2.0**31, -(2.0**31), 2.0**31 - 128, 1e30, -1e30])
)


@pytest.mark.parametrize("scheme", BIAS_RULES)
@given(input_scale=SCALES, weight_scale=SCALES, value=VALUES)
@example(input_scale=1.0, weight_scale=1.0, value=-(2.0**31))
@example(input_scale=1.0, weight_scale=1.0, value=2.5)
@example(input_scale=2.0**-60, weight_scale=2.0**-88, value=1.0)
@example(input_scale=2.0**-60, weight_scale=2.0**-100, value=1.0)
def test_against_fractions(scheme: str, input_scale: float, weight_scale: float, value: float) -> None:
    rule = bias_rule_named(scheme)
    scale = F(input_scale) * F(weight_scale)
    kept = f64(scale) if scheme == "torch" else f32(F(f32(F(input_scale))) * F(f32(F(weight_scale))))
    scales = bias_scales(rule, input_scale, np.array([weight_scale]))
    assert scales.tolist() == [kept]
    values = np.array([value], np.float32)
    wanted = expected(scheme, float(values[0]), kept)
    if wanted is None:
        with pytest.raises(PreconditionError):
            quantize_bias(rule, values, scales)
    else:
        assert quantize_bias(rule, values, scales).values.tolist() == [wanted]


@pytest.mark.parametrize("scheme", BIAS_RULES)
def test_saturated_are_counted(scheme: str) -> None:
    rule = bias_rule_named(scheme)
    values = np.array([3e9, -3e9, -3e9, 5.0], np.float32)
    found = quantize_bias(rule, values, bias_scales(rule, 1.0, np.array([1.0])))
    assert (found.saturated_low, found.saturated_high) == (2, 1)
    assert found.values[3] == 5


def test_the_lowest_integer() -> None:
    for scheme, saturated in (("litert", 1), ("onnxruntime", 0), ("torch", 0)):
        rule = bias_rule_named(scheme)
        found = quantize_bias(rule, np.array([-(2.0**31)], np.float32), bias_scales(rule, 1.0, np.array([1.0])))
        assert found.saturated_low == saturated


def test_one_scale_for_each_channel() -> None:
    weights = np.array([0.5, 0.25, 2.0])
    for scheme, rule in BIAS_RULES.items():
        found = quantize_bias(rule, np.array([1.0, 1.0, 1.0], np.float32), bias_scales(rule, 0.5, weights))
        assert found.values.tolist() == [4, 8, 1], scheme


@pytest.mark.parametrize(
    ("scheme", "input_scale", "weights", "values", "error"),
    [
        ("litert", -1.0, [1.0], [1.0], ParameterError),
        ("litert", 1.0, [math.nan], [1.0], ParameterError),
        ("litert", 1e39, [1.0], [1.0], ParameterError),
        ("litert", 1e30, [1e30], [1.0], PreconditionError),
        ("torch", 1e200, [1e200], [1.0], PreconditionError),
        ("torch", 1.0, [0.0], [1.0], PreconditionError),
        ("onnxruntime", 1.0, [0.0], [1.0], PreconditionError),
        ("onnxruntime", 1.0, [1.0, 1.0], [1.0, 1.0, 1.0], TypeFitError),
        ("onnxruntime", 1.0, [1.0], [math.nan], ParameterError),
        ("litert", 1.0, [1.0], [math.inf], ParameterError),
        ("tosa", 1.0, [1.0], [1.0], UnknownNameError),
    ],
)
def test_refused(
    scheme: str, input_scale: float, weights: list[float], values: list[float], error: type[RequantError]
) -> None:
    def run() -> Any:
        rule = bias_rule_named(scheme)
        return quantize_bias(rule, np.array(values, np.float32), bias_scales(rule, input_scale, np.array(weights)))

    with pytest.raises(error):
        run()


def test_a_scale_of_zero_gives_zero_in_the_converter() -> None:
    rule = bias_rule_named("litert")
    assert quantize_bias(
        rule, np.array([7.0], np.float32), bias_scales(rule, 1.0, np.array([0.0]))
    ).values.tolist() == [0]
