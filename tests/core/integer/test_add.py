"""Sums of quantized tensors and int32 biases against exact integers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requant.errors import ParameterError, PreconditionError, RequantError, TypeFitError, UnsupportedError
from requant.integer.add import plan_add
from requant.integer.output import plan_bias
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.profiles import PROFILES, Operation
from tests.core.integer.test_matmul import bounds_of
from tests.oracles import addition as addition_oracle
from tests.oracles.quantization import nearest_away, nearest_even
from tests.support.cases import examples, sample
from tests.support.drawn_types import tensor

PROFILES_WITH_ADD = (
    "litert", "litert_single_rounding", "litert_xnnpack", "stablehlo", "tosa", "tosa_double_round", "onnx",
    "onnx_reference", "onednn", "torch_decomposed",
)  # fmt: skip
SCALES = st.one_of(st.sampled_from([0.5, 0.25, 1.0, 2.0]), st.floats(2.0**-6, 2.0, width=32))


@settings(max_examples=examples(600))
@given(data=st.data())
def test_every_profile_against_integers(data: st.DataObject) -> None:
    profile = data.draw(st.sampled_from(PROFILES_WITH_ADD))
    wide = profile in ("litert", "litert_single_rounding", "tosa", "tosa_double_round") and data.draw(st.booleans())
    storages = ("i16",) if wide else ("i8",) if profile.startswith("tosa") else ("i8", "u8")
    types = [data.draw(st.sampled_from(storages)) for _ in range(3)]
    zeros = [0 if wide else data.draw(st.integers(*bounds_of(each))) for each in types]
    scales = data.draw(SCALES), data.draw(SCALES), data.draw(SCALES)
    count = data.draw(st.integers(1, 8))
    numbers = [[data.draw(st.integers(*bounds_of(each))) for _ in range(count)] for each in types[:2]]
    texts = [
        f"!quant.uniform<{storage}:f32, {scale!r}:{zero}>"
        for storage, scale, zero in zip(types, scales, zeros, strict=True)
    ]
    expected = [
        addition_oracle.added(
            profile, (a, b), (zeros[0], zeros[1]), scales, zeros[2], bounds_of(types[2]), 15 if wide else 20
        )
        for a, b in zip(*numbers, strict=True)
    ]
    try:
        plan = plan_add(
            tensor(f"tensor<{count}x{texts[0]}>"), tensor(f"tensor<{count}x{texts[1]}>"), parse_type(texts[2]), profile
        )
    except ParameterError:
        # LiteRT's output factor has to be below 1.
        assert profile.startswith("litert")
        assert 2 * max(scales[:2]) / (2.0 ** (15 if wide else 20) * scales[2]) >= 1 - 2.0**-31
        return
    target = np.empty(count, plan.output_dtype)
    a, b = (np.array(each, plan.operand(side)[1].dtype) for each, side in zip(numbers, ("lhs", "rhs"), strict=True))
    if None in expected:
        with pytest.raises(PreconditionError) as caught:
            plan.run(a, b, target)
        assert caught.value.index == expected.index(None)
        return
    plan.run(a, b, target)
    assert target.tolist() == expected
    stages = plan.stages(a, b)
    if "after_zero_point" in stages:
        assert np.clip(stages["after_zero_point"], *bounds_of(types[2])).tolist() == expected
    if "lhs_scaled" in stages:
        assert np.array_equal(stages["sum"], stages["lhs_scaled"] + stages["rhs_scaled"])


@pytest.mark.parametrize("profile", PROFILES_WITH_ADD)
def test_pieces_and_counts(profile: str) -> None:
    """More elements than a piece has: the oracle's values, and its tally."""
    # Fewer numbers make fewer pairs, and the oracle is asked once for each.
    numbers = sample(range(-128, 128), 37)
    a, b = np.random.default_rng(2).choice(numbers, (2, 17000)).astype(np.int8)
    types = [f"!quant.uniform<i8:f32, {scale}:{zero}>" for scale, zero in ((0.5, 3), (0.25, -7), (0.5, 9))]
    sides = [tensor(f"tensor<17000x{each}>") for each in types[:2]]
    plan = plan_add(sides[0], sides[1], parse_type(types[2]), profile)
    target = np.empty(17000, np.int8)
    report = plan.run(a, b, target)
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    unclamped = {
        pair: addition_oracle.added(profile, pair, (3, -7), (0.5, 0.25, 0.5), 9, addition_oracle.ANY)
        for pair in set(pairs)
    }
    totals = np.array([unclamped[pair] for pair in pairs])
    assert np.array_equal(target, np.clip(totals, -128, 127))
    assert (report.saturated_low, report.saturated_high) == ((totals < -128).sum(), (totals > 127).sum())


@pytest.mark.parametrize(("profile", "kept"), [("litert", np.float32), ("tosa", np.float64)])
def test_the_precision_that_scales_are_taken_in(profile: str, kept: type[np.floating[Any]]) -> None:
    """LiteRT's tensors hold f32 scales; no f32 is one of these."""

    def multipliers(scales: tuple[float, ...]) -> Any:
        types = [f"!quant.uniform<i8:f32, {scale!r}>" for scale in scales]
        plan = plan_add(tensor(f"tensor<4x{types[0]}>"), tensor(f"tensor<4x{types[1]}>"), parse_type(types[2]), profile)
        return plan.arithmetic.multipliers

    scales = (0.1, 0.3, 0.7)
    assert multipliers(scales) == multipliers(tuple(float(kept(scale)) for scale in scales))
    assert (multipliers(scales) == multipliers(tuple(float(np.float32(scale)) for scale in scales))) == (
        kept is np.float32
    )


def test_broadcast() -> None:
    i8 = "!quant.uniform<i8:f32, 1.0>"
    plan = plan_add(tensor(f"tensor<2x1x{i8}>"), tensor(f"tensor<3x{i8}>"), parse_type(i8))
    target = np.empty(6, np.int8)
    plan.run(np.array([10, 20], np.int8), np.array([1, 2, 3], np.int8), target)
    assert target.tolist() == [11, 12, 13, 21, 22, 23]


@pytest.mark.parametrize("profile", PROFILES_WITH_ADD)
@pytest.mark.parametrize("shape", ["", "1x", "1x1x"])
def test_broadcast_of_one_element(profile: str, shape: str) -> None:
    i8 = "!quant.uniform<i8:f32, 1.0>"
    one, many, target = np.array([10], np.int8), np.arange(64, dtype=np.int8), np.empty(64, np.int8)
    for lhs, rhs, a, b in ((shape, "2x32x", one, many), ("2x32x", shape, many, one)):
        plan = plan_add(tensor(f"tensor<{lhs}{i8}>"), tensor(f"tensor<{rhs}{i8}>"), parse_type(i8), profile)
        plan.run(a, b, target)
        assert target.tolist() == list(range(10, 74))


def test_channels_are_added_as_real_numbers() -> None:
    axis = "!quant.uniform<i8:f32:0, {1.0, 2.0}>"
    for profile in ("onnx", "stablehlo"):
        plan = plan_add(tensor(f"tensor<2x{axis}>"), tensor(f"tensor<2x{axis}>"), parse_type(axis), profile)
        target = np.empty(2, np.int8)
        plan.run(np.array([1, 2], np.int8), np.array([3, 4], np.int8), target)
        assert target.tolist() == [4, 6]


@pytest.mark.parametrize(
    ("lhs", "rhs", "output", "profile", "error", "side"),
    [
        ("2xi8", "2x!quant.uniform<i8:f32, 1.0>", "!quant.uniform<i8:f32, 1.0>", "litert", UnsupportedError, "lhs"),
        ("2x!Q", "3x!Q", "!Q", "litert", TypeFitError, "rhs"),
        ("2x!Q", "2x!Q", "tensor<3x!Q>", "litert", TypeFitError, "output"),
        ("2x!Q", "2x!quant.uniform<i8:f64, 1.0>", "!Q", "litert", UnsupportedError, "rhs"),
        ("2x!Q", "2x!Q", "!quant.uniform<i8:f32:0, {1.0, 2.0}>", "litert", UnsupportedError, "output"),
        ("1x!Q", "2x!quant.uniform<i8:f32:0, {1.0, 2.0}>", "!Q", "onnx", None, None),
        ("2x!Q", "1x!quant.uniform<i8:f32:0, {1.0}>", "!Q", "onnx", UnsupportedError, "rhs"),
        ("2x!quant.uniform<i16:f32, 1.0:1>", "2x!Q", "!Q", "litert", UnsupportedError, "lhs"),
        ("2x!quant.uniform<i16:f32, 1.0>", "2x!Q", "!Q", "litert_xnnpack", UnsupportedError, "lhs"),
        ("2x!Q", "2x!Q", "!quant.uniform<i8:f32, 1.0e-7>", "litert", ParameterError, None),
        ("2x!Q", "2x!Q", "!quant.uniform<i8:f32, 1.0e-7>", "litert_xnnpack", ParameterError, None),
        ("2x!Q", "2x!Q", "!Q", "torch", UnsupportedError, None),
    ],
)
def test_refused(
    lhs: str, rhs: str, output: str, profile: str, error: type[RequantError] | None, side: str | None
) -> None:
    lhs, rhs, output = (each.replace("!Q", "!quant.uniform<i8:f32, 1.0>") for each in (lhs, rhs, output))
    if error is None:
        plan_add(tensor(f"tensor<{lhs}>"), tensor(f"tensor<{rhs}>"), parse_type(output), profile)
        return
    with pytest.raises(error) as caught:
        plan_add(tensor(f"tensor<{lhs}>"), tensor(f"tensor<{rhs}>"), parse_type(output), profile)
    assert caught.value.side == side


@pytest.mark.parametrize(
    ("scales", "multipliers"),
    [
        # 1 = 2^20 * 2^-20, and 1/2 with the same shift.
        ((1.0, 0.5, 1.0), ((1 << 20, 20), (1 << 19, 20))),
        # 3/4 = 0.75 * 2^21 * 2^-21; 2^-9 of that.
        ((1.5, 1.5 / 512, 2.0), ((3 << 19, 21), (3 << 10, 21))),
        ((128.0, 0.25, 1.0), ((1 << 20, 13), (1 << 11, 13))),
    ],
)
def test_the_multipliers_of_xnnpack(
    scales: tuple[float, float, float], multipliers: tuple[tuple[int, int], ...]
) -> None:
    lhs, rhs, output = (f"!quant.uniform<i8:f32, {scale!r}>" for scale in scales)
    plan = plan_add(tensor(f"tensor<1x{lhs}>"), tensor(f"tensor<1x{rhs}>"), parse_type(output), "litert_xnnpack")
    assert [(each.multiplier, each.shift) for each in plan.arithmetic.multipliers] == list(multipliers)


NEAREST = {"litert": nearest_away, "onnx": nearest_even}


@pytest.mark.parametrize("profile", NEAREST)
@pytest.mark.parametrize(("own", "sums"), [(0.5, 1.0), (0.25, 1.0), (1.0, 2.0), (0.75, 0.5), (0.1, 0.3), (3.0, 1.0)])
def test_ties_go_where_the_profile_says(profile: str, own: float, sums: float) -> None:
    values = np.array([*range(-9, 10), 2**31 - 1, -(2**31)], np.int32)
    tensor = parse_type(f"tensor<{values.size}x!quant.uniform<i32:f32, {own}>>")
    assert isinstance(tensor, TensorType)
    rule = PROFILES[profile].operations[Operation.QUANTIZE]
    ratio = Fraction(float(np.float32(own))) / Fraction(sums)
    found = plan_bias(tensor, values.size, [sums], rule, profile).added(values)
    assert found.tolist() == [NEAREST[profile](value * ratio) for value in values.tolist()]
