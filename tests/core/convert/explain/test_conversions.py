"""Explanations of quantize, dequantize and casts: each step from exact numbers."""

from __future__ import annotations

import zlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.convert.explain import quantize
from requant.convert.explain.dequantize import dequantize_explainer
from requant.convert.explain.explanation import ContradictionError, StepKind
from requant.convert.explain.quantize import quantize_explainer
from requant.convert.quantize import NanPolicy
from requant.convert.quantize_plans import ROUNDINGS
from requant.errors import PreconditionError, RequantError
from requant.mlir import parse_type
from requant.profiles import PROFILES, Operation, Rounding
from requant.profiles.cast import FINITE, FiniteNan
from tests.support.cases import EXHAUSTIVE
from tests.support.drawn_types import EXPRESSED, as_expressed, draw_type, drawable, hard_values, stored_numbers, tensor
from tests.support.float_samples import SPECIAL, neighbours, patterns

TABLE = "!quant.quantile<i3:f32, {-1.0, -0.5, -0.5, 0.0, 0.25, 0.5, 1.0, 3.0}>"
DEFINING = [name for name, each in PROFILES.items() if Operation.QUANTIZE in each.operations and name != "quantile"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", DEFINING)
def test_every_profile(name: str) -> None:
    rule, rng, done = PROFILES[name].operations[Operation.QUANTIZE], np.random.default_rng(zlib.crc32(name.encode())), 0
    for storage, expressed, granularity in drawable(rule):
        drawn = draw_type(rng, storage, expressed, granularity)
        options: dict[str, Any] = {}
        if storage[0] != "f":
            options["seed"] = 7
            options["rounding"] = rng.choice(np.array([None] * 6 + [*ROUNDINGS], object))
            options["nan"] = rng.choice(
                np.array([NanPolicy.PROFILE] * 4 + [NanPolicy.LOWEST, NanPolicy.ZERO_POINT], object)
            )
        try:
            given = tensor(f"tensor<{drawn.shape}x{expressed}>")
            explainer = quantize_explainer(given, parse_type(drawn.text), name, **options)
        except RequantError:
            continue
        source = hard_values(rng, drawn, explainer.plan.elements, expressed)
        if name == "mlir":
            # Nothing else has a result.
            source = as_expressed(rng.uniform(-2, 2, source.size) * drawn.scales[0], expressed)
        try:
            done += len(explainer.run(source).elements)
        except PreconditionError:
            continue
    assert done > (200 if EXHAUSTIVE else 100)


@pytest.mark.parametrize("expressed", EXPRESSED)
def test_tables(expressed: str) -> None:
    rng = np.random.default_rng(3)
    for scale, zero_point in (("0.5", 0), ("0.1", 1), ("3.0", -2)):
        quantized = parse_type(f"!quant.uniform<{TABLE}:{expressed}, {scale}:{zero_point}>")
        explainer = quantize_explainer(tensor(f"tensor<40x{expressed}>"), quantized, "quantile")
        few = np.array([np.nan, np.inf, -np.inf, 1e30, -0.0])
        values = np.concatenate([rng.integers(-20, 20, 30) / 8, few, rng.normal(size=5)])
        explainer.run(as_expressed((values - zero_point) * float(scale), expressed))


def test_the_steps_of_a_tie() -> None:
    explainer = quantize_explainer(tensor("tensor<1xf32>"), parse_type("!quant.uniform<i8:f32, 0.1:3>"), "onnx")
    found = explainer.run(np.array([0.25], np.float32))
    _, division, rounding, addition, clamp = found.elements[0].steps
    assert (division.step, division.inserted, division.value) == (StepKind.DIVIDE, "0.25 / 0.1", "2.5")
    assert division.unrounded == "2.4999999627470975704…"
    assert (rounding.inserted, rounding.value, rounding.tie) == ("RNE(2.5)", "2", True)
    assert (addition.inserted, addition.value) == ("2 + 3", "5")
    assert (clamp.symbol, clamp.inserted) == ("q", "clamp(5, -128, 127)")
    assert found.formula == ("s = f32(scale)", "v = x / s", "n = RNE(v)", "t = n + z", "q = clamp(t, lo, hi)")


def test_a_reciprocal_that_is_rounded_twice() -> None:
    # 1 / scale is below the middle of two f32, and its f64 is that middle.
    scale = 0.9999993443493373
    type_ = parse_type(f"!quant.uniform<i16:f32, {scale!r}>")
    values = (np.arange(-128, 128) / 2 * scale).astype(np.float32)
    found = quantize_explainer(tensor("tensor<256xf32>"), type_, "torch_decomposed").run(values)
    reciprocal = found.elements[0].steps[0]
    assert (reciprocal.formula, reciprocal.bits) == ("f32(f64(1 / scale))", "0x3F800006")
    assert 1 / Fraction(scale) < Fraction(2 * 0x800006 - 1, 2 << 23)


def test_a_subnormal_that_is_flushed_to_zero() -> None:
    explainer = quantize_explainer(
        tensor("tensor<2xf32>"), parse_type("!quant.uniform<i8:f32, 0.5>"), "litert_xnnpack", rounding=Rounding.CEILING
    )
    found = explainer.run(np.array([1e-39, 1e-30], np.float32))
    assert [each.result for each in found.elements] == [0, 1]
    flush = found.elements[0].steps[0]
    assert (flush.step, flush.value, flush.tie) == (StepKind.FLUSH, "0.0", False)


def test_scales_that_are_left_out() -> None:
    explainer = quantize_explainer(tensor("tensor<2xf32>"), parse_type("!quant.uniform<i8:f32, 1.0000009>"), "onednn")
    found = explainer.run(np.array([0.50000036, 2.5], np.float32))
    assert [each.steps[0].inserted for each in found.elements] == ["1", "1"]
    # 0.50000036 / 1.0000009 would be rounded down.
    assert [each.result for each in found.elements] == [1, 2]


@pytest.mark.parametrize(("bounds", "expected"), [
    ("i32<70000:80000>:f16, 0.5:75000", [*[2**31 - 1] * 3, 0, 2**31 - 1, 0]),
    ("i32<-80000:-70000>:f16, 0.5:-75000", [-(2**31), -(2**31), 0, -(2**31), 0, -(2**31)]),
    ("u32<3000000000:4000000000>:f16, 0.5:3100000000", [*[2**32 - 1] * 3, 0, 2**32 - 1, 0]),
])  # fmt: skip
def test_bounds_beyond_the_largest_f16(bounds: str, expected: list[int]) -> None:
    """StableHLO clamps in f16, where they are infinite, and its convert saturates; inf - inf is NaN, and NaN is 0."""
    values = np.array([0.0, -1.0, 65504.0, -65504.0, np.inf, -np.inf], np.float16)
    explainer = quantize_explainer(tensor("tensor<6xf16>"), parse_type(f"!quant.uniform<{bounds}>"))
    assert [each.result for each in explainer.run(values).elements] == expected


@pytest.mark.parametrize("profile", ["litert", "litert_single_rounding", "onnx_reference"])
@pytest.mark.parametrize(("beyond", "zero_point", "stored"), [
    (2.0**31, -5, 2**31 - 5), (2.0**31 + 256, -1000, 2**31 - 1000), (-(2.0**31) - 256, 1000, 1000 - 2**31),
])  # fmt: skip
def test_what_int32_does_not_hold_counts_where_the_sum_is_within_the_bounds(
    profile: str, beyond: float, zero_point: int, stored: int
) -> None:
    """In a whole group of elements, too: -2^31 and the zero point wrap to within the bounds."""
    type_ = parse_type(f"!quant.uniform<i32:f32, 1.0:{zero_point}>")
    for count in (1, 16, 64):
        values = np.zeros(count, np.float32)
        values[-1] = beyond
        found = quantize_explainer(tensor(f"tensor<{count}xf32>"), type_, profile).run(values)
        assert found.elements[-1].result == stored
        assert (found.report.saturated_low, found.report.saturated_high) == (1, 0)


def test_each_element_has_its_own_parameters() -> None:
    text = "!quant.uniform<i8:f32:{0:1, 1:3}, {{0.5:1, 0.25:2}, {2.0:3, 4.0:4}}>"
    found = quantize_explainer(tensor("tensor<2x6xf32>"), parse_type(text), "onnx").run(np.ones(12, np.float32))
    assert [each.parameter for each in found.elements] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert [each.steps[0].value for each in found.elements[::3]] == ["0.5", "0.25", "2.0", "4.0"]


def test_a_wrong_rule_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantize, "round_to_integer", lambda number, *_: int(number))
    explainer = quantize_explainer(tensor("tensor<1xf32>"), parse_type("!quant.uniform<i8:f32, 0.5>"), "onnx")
    with pytest.raises(ContradictionError, match="element 0"):
        explainer.run(np.array([0.75], np.float32))


DEQUANTIZING = [
    name for name, each in PROFILES.items() if Operation.DEQUANTIZE in each.operations and name != "quantile"
]


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", DEQUANTIZING)
def test_every_profile_of_dequantize(name: str) -> None:
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
def test_tables_of_dequantize(expressed: str) -> None:
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


ROUNDS = 5 if EXHAUSTIVE else 1
CASTING = [name for name, profile in PROFILES.items() if profile.casts is not None]
# Where formats end, and where some authorities slip; and the smallest scales, and the ties between them.
ENDS = np.array([448, 464, 480, 495.9, 496, 57344, 61440, 65535.9, 65536, 240, 248], np.float32)
SMALLEST = np.array([4, 5, 6, 7, 8, 12], np.float32) * np.float32(2.0**-129)


def hard_numbers(rng: np.random.Generator) -> NDArray[np.float64]:
    """46 numbers: the ends of formats, specials, ties of few bits at all exponents, and patterns."""
    ties = np.exp2(rng.integers(-140, 140, 24)) * rng.choice([1, 1.5, 1.25, -1, -1.75, 1.125], 24)
    few = rng.integers(-40, 40, 19) * np.exp2(rng.integers(-20, 8, 19).astype(float))
    with np.errstate(all="ignore"):
        values = np.concatenate([neighbours(ENDS), SPECIAL, patterns(20, rng), ties, few]).astype(np.float64)
    return np.concatenate([rng.permutation(values)[:40], SMALLEST])


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CASTING)
def test_to_narrower_floats(name: str) -> None:
    rng, rule, done = np.random.default_rng(zlib.crc32(name.encode())), PROFILES[name].cast_rule(), 0
    few = 12 // (len(rule.formats) * len(rule.sources)) + 1
    for target in [*rule.formats] * (few * ROUNDS):
        roundings = [(None, each) for each in rule.roundings_to(target)]
        for source in rule.sources:
            for saturate, rounding in [(None, None), (False, None), (True, None), *roundings]:
                numbers = hard_numbers(rng)
                if rule.finite_nan is FiniteNan.ERROR and target in FINITE:
                    numbers = numbers[~np.isnan(numbers)]
                values = as_expressed(numbers, source)
                try:
                    given = tensor(f"tensor<{values.size}x{source}>")
                    explainer = quantize_explainer(
                        given, parse_type(target), name, saturate=saturate, rounding=rounding
                    )
                except RequantError:
                    continue
                done += len(explainer.run(values).elements)
    assert done > 200


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CASTING)
def test_to_wider_floats(name: str) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for source in PROFILES[name].cast_rule().formats:
        wide = source in EXPRESSED
        codes = rng.permutation(1 << (16 if wide else int(source[1])))[:64]
        for target in EXPRESSED:
            try:
                explainer = dequantize_explainer(tensor(f"tensor<{codes.size}x{source}>"), parse_type(target), name)
            except RequantError:
                continue
            explainer.run(codes.astype("<u2" if wide else "u1").view(explainer.plan.input_dtype))
