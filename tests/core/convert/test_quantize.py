"""quantize and dequantize against the oracle, element by element and count by count."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import NanPolicy, plan_quantize
from requant.errors import PreconditionError, RequantError, TypeFitError, UnknownNameError, UnsupportedError
from requant.mlir import parse_type
from requant.plan.plan import Plan
from tests.oracles import quantization as oracle
from tests.support.cases import examples, sample, sample_array
from tests.support.drawn_types import tensor
from tests.support.float_samples import SPECIAL, around_ties, patterns

QUANTIZE: dict[str, Callable[[float, float, int, int, int], oracle.Stored]] = {
    "stablehlo": oracle.quantize_stablehlo,
    "onnx": oracle.quantize_onnx,
    "litert": oracle.quantize_litert,
}
DEQUANTIZE: dict[str, Callable[[int, float, int], float]] = {
    "stablehlo": oracle.dequantize,
    "onnx": oracle.dequantize,
    "litert": oracle.dequantize_litert,
}
RANGES = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767), "u16": (0, 65535), "i32": (-(2**31), 2**31 - 1)}
SCALES = (1.0, 0.5, 0.1, 0.0237, 1 / 255, 3.0, 1.401298464324817e-45, 1e-30, 1e30)


def f32_scale(scale: float) -> float:
    return float(np.float32(scale))


def check_quantize(plan: Plan, x: np.ndarray, expected: list[oracle.Stored]) -> None:
    target = np.empty(x.size, plan.output_dtype)
    report = plan.run(x, target)
    stored = target.tolist()
    wrong = [(float(a), b, c.value) for a, b, c in zip(x, stored, expected, strict=True) if b != c.value]
    assert not wrong, f"{len(wrong)} of {x.size} differ, first (x, got, expected): {wrong[:3]}"
    assert (report.elements, report.saturated_low, report.saturated_high, report.nan) == (
        x.size,
        sum(each.low for each in expected),
        sum(each.high for each in expected),
        sum(each.nan for each in expected),
    )


@pytest.mark.parametrize(
    ("profile", "expected"),
    [("stablehlo", [4, 4, 6, 2]), ("onnx", [3, 5, 5, 3]), ("litert", [4, 5, 6, 2])],
)
def test_tie_discriminator(profile: str, expected: list[int]) -> None:
    """x = 0.5, 1.5, 2.5, -0.5 with s = 1, z = 3 tells the profiles apart."""
    plan = plan_quantize(tensor("tensor<4xf32>"), parse_type("!quant.uniform<i8:f32, 1.0:3>"), profile)
    target = np.empty(4, np.int8)
    plan.run(np.array([0.5, 1.5, 2.5, -0.5], np.float32), target)
    assert target.tolist() == expected


@pytest.mark.parametrize(("profile", "storage", "scale"), sample(list(product(QUANTIZE, RANGES, SCALES)), 27))
def test_quantize_per_tensor(profile: str, storage: str, scale: float) -> None:
    lowest, highest = RANGES[storage]
    rng = np.random.default_rng(1)
    for zero_point in {0, 3 if lowest <= 3 else 0, lowest, highest, (lowest + highest) // 2 + 1}:
        s = f32_scale(scale)
        ties = around_ties(s, zero_point, lowest, highest, rng)
        x = np.concatenate([SPECIAL, ties, sample_array(patterns(200, rng), 40)])
        plan = plan_quantize(
            tensor(f"tensor<{x.size}xf32>"),
            parse_type(f"!quant.uniform<{storage}:f32, {scale:.17e}:{zero_point}>"),
            profile,
        )
        check_quantize(plan, x, [QUANTIZE[profile](float(v), s, zero_point, lowest, highest) for v in x])


@pytest.mark.parametrize("storage", ["i8<-127:127>", "u8<1:200>", "i32<-2147483000:2147483000>"])
@pytest.mark.parametrize("profile", QUANTIZE)
def test_quantize_to_narrowed_bounds(profile: str, storage: str) -> None:
    lowest, highest = (int(bound) for bound in storage[storage.index("<") + 1 : -1].split(":"))
    rng = np.random.default_rng(2)
    x = np.concatenate([SPECIAL, around_ties(1.0, 5, lowest, highest, rng), patterns(200, rng)])
    plan = plan_quantize(tensor(f"tensor<{x.size}xf32>"), parse_type(f"!quant.uniform<{storage}:f32, 1.0:5>"), profile)
    check_quantize(plan, x, [QUANTIZE[profile](float(v), 1.0, 5, lowest, highest) for v in x])


@pytest.mark.parametrize("storage", RANGES)
@pytest.mark.parametrize("profile", DEQUANTIZE)
def test_dequantize_every_stored_value(profile: str, storage: str) -> None:
    """All values of 8-bit storage; of the others the extremes and a sample."""
    lowest, highest = RANGES[storage]
    rng = np.random.default_rng(3)
    symmetric = (profile == "onnx" and storage == "i32") or (profile == "litert" and storage == "i16")
    zero_points = {0} if symmetric else {0, lowest, highest, 7}
    for zero_point, scale in zip(sorted(zero_points), (0.1, 1 / 255, 1e-40, 1e38), strict=False):
        if storage == "i32":
            anywhere = sample_array(rng.integers(lowest, highest, 3000), 500)
            q = np.concatenate([anywhere, [lowest, highest, 16777217, -16777217]])
        else:
            q = np.arange(lowest, highest + 1)[:: 1 if storage.endswith("8") else 7]
            q = q if storage.endswith("8") else sample_array(q, 500)
        text = f"tensor<{q.size}x!quant.uniform<{storage}:f32, {scale:.17e}:{zero_point}>>"
        plan = plan_dequantize(tensor(text), None, profile)
        target = np.empty(q.size, np.float32)
        report = plan.run(q.astype(plan.input_dtype), target)
        s = f32_scale(scale)
        expected = [oracle.to_bits(DEQUANTIZE[profile](int(v), s, zero_point)) for v in q]
        assert [f"{bits:08x}" for bits in target.view("<u4").tolist()] == expected
        assert (report.saturated_low, report.saturated_high, report.nan) == (0, 0, 0)


@pytest.mark.parametrize("profile", QUANTIZE)
@pytest.mark.parametrize("storage", ["i8", "u8"])
def test_every_stored_value_survives_the_round_trip(profile: str, storage: str) -> None:
    lowest, highest = RANGES[storage]
    text = f"!quant.uniform<{storage}:f32, 0.0237:{lowest + 100}>"
    stored = np.arange(lowest, highest + 1).astype(np.int8 if storage == "i8" else np.uint8)
    real, again = np.empty(256, np.float32), np.empty_like(stored)
    plan_dequantize(tensor(f"tensor<256x{text}>"), None, profile).run(stored, real)
    plan_quantize(tensor("tensor<256xf32>"), parse_type(text), profile).run(real, again)
    assert again.tolist() == stored.tolist()


SHAPES = [
    ((5,), 0),
    ((3, 4), 0),
    ((3, 4), 1),
    ((2, 3, 5), 1),
    ((2, 3, 70), 1),
    ((4, 100), 0),
    ((2, 700), 1),
    ((2, 2, 3, 2), 2),
]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("profile", ["stablehlo", "onnx", "litert"])
@pytest.mark.parametrize("storage", ["i8", "i32"])
def test_per_axis_in_any_pieces(profile: str, storage: str, shape: tuple[int, ...], axis: int) -> None:
    """Every axis, each layout, and the same bits and counts however the tensor is cut."""
    lowest, highest = RANGES[storage]
    rng = np.random.default_rng(4)
    count = shape[axis]
    scales = [f32_scale(0.05 + 0.01 * i) for i in range(count)]
    # onnx refuses zero points on i32 when it dequantizes.
    zero_points = [0 if (profile, storage) == ("onnx", "i32") else i % 7 - 3 for i in range(count)]
    parameters = ", ".join(f"{s:.17e}:{z}" for s, z in zip(scales, zero_points, strict=True))
    plan = plan_quantize(
        tensor(f"tensor<{'x'.join(map(str, shape))}xf32>"),
        parse_type(f"!quant.uniform<{storage}:f32:{axis}, {{{parameters}}}>"),
        profile,
    )
    x = np.round(rng.normal(0, 8, prod(shape)) * 8).astype(np.float32) / np.float32(80)
    x[rng.integers(0, x.size, 3)] = [np.nan, np.inf, -np.inf]
    channel = np.broadcast_to(
        np.arange(count).reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape
    ).ravel()
    expected = [
        QUANTIZE[profile](float(v), scales[c], zero_points[c], lowest, highest) for v, c in zip(x, channel, strict=True)
    ]
    check_quantize(plan, x, expected)
    for pieces in (1, 3, 7, 64):
        target, counts = np.empty(x.size, plan.output_dtype), plan.new_counts()
        for start in range(0, x.size, pieces):
            plan.step(x[start : start + pieces], target[start : start + pieces], start, counts)
        assert target.tolist() == [each.value for each in expected]
        assert plan.report(counts) == plan.run(x, target)
    real = np.empty(x.size, np.float32)
    bound = plan.output_type
    plan_dequantize(bound, None, profile).run(target, real)
    back = [DEQUANTIZE[profile](int(q), scales[c], zero_points[c]) for q, c in zip(target, channel, strict=True)]
    assert real.tolist() == back


@settings(max_examples=examples(300))
@given(
    profile=st.sampled_from(sorted(QUANTIZE)),
    storage=st.sampled_from(sorted(RANGES)),
    scale=st.floats(2.0**-149, 2.0**127, width=32),
    data=st.data(),
)
def test_quantize_anything(profile: str, storage: str, scale: float, data: st.DataObject) -> None:
    lowest, highest = RANGES[storage]
    zero_point = data.draw(st.integers(lowest, highest))
    furthest = min(2.0**20, 2.0**126 / scale)
    step = st.floats(-furthest, furthest).map(lambda steps: float(np.float32(math.floor(steps) / 2 * scale)))
    values = data.draw(st.lists(st.one_of(st.floats(width=32), step), min_size=1, max_size=20))
    x = np.array(values, np.float32)
    text = f"!quant.uniform<{storage}:f32, {scale:.17e}:{zero_point}>"
    plan = plan_quantize(tensor(f"tensor<{x.size}xf32>"), parse_type(text), profile)
    check_quantize(plan, x, [QUANTIZE[profile](float(v), scale, zero_point, lowest, highest) for v in x])


def test_empty_and_scalar_tensors() -> None:
    for shape, size in (("", 1), ("0x", 0), ("3x0x2x", 0)):
        plan = plan_quantize(tensor(f"tensor<{shape}f32>"), parse_type("!quant.uniform<i8:f32, 0.5>"))
        target = np.empty(size, np.int8)
        assert plan.run(np.ones(size, np.float32), target).elements == size
        assert target.tolist() == [2] * size


@pytest.mark.parametrize(
    ("input_type", "output_type", "profile", "error", "says"),
    [
        ("tensor<4xf32>", "!quant.uniform<i8:f32, 1.0>", "nosuch", UnknownNameError, "stablehlo"),
        ("tensor<4xf32>", "!quant.uniform<i8:f32, 1.0>", "tosa", UnsupportedError, "does not define quantize"),
        ("tensor<4xf16>", "!quant.uniform<i8:f16, 1.0>", "litert", UnsupportedError, "f16"),
        ("tensor<4xf32>", "!quant.uniform<i8:f16, 1.0>", "stablehlo", UnsupportedError, "f16"),
        ("tensor<4xf32>", "f32", "stablehlo", UnsupportedError, "the output has elements of f32"),
        ("tensor<4xf32>", "!quant.uniform<i4:f32, 1.0>", "torch", UnsupportedError, "i4"),
        ("tensor<4xf32>", "!quant.uniform<f8E5M2:f32, 1.0>", "stablehlo", UnsupportedError, "f8E5M2"),
        ("tensor<4xf32>", "!quant.uniform<i8:f32, 1.0:200>", "onnx", UnsupportedError, "200"),
        ("tensor<4xf32>", "!quant.uniform<i8:f32, 1.0e-38>", "litert_xnnpack", UnsupportedError, "subnormal"),
        ("tensor<4xf64>", "!quant.uniform<i8:f64, 1.0e+300>", "litert_xnnpack", UnsupportedError, "takes f32 here"),
        ("tensor<4xf32>", "!quant.uniform<i8:f32:0, {1.0, 2.0}>", "onnx", TypeFitError, "2"),
        ("tensor<4xf32>", "!quant.uniform<i8:f32:1, {1.0}>", "onnx", TypeFitError, "axis 1"),
        ("tensor<?xf32>", "!quant.uniform<i8:f32, 1.0>", "onnx", TypeFitError, "dynamic"),
        ("tensor<*xf32>", "!quant.uniform<i8:f32, 1.0>", "onnx", TypeFitError, "unranked"),
        ("tensor<4xf32>", "tensor<5x!quant.uniform<i8:f32, 1.0>>", "onnx", TypeFitError, "5"),
    ],
)
def test_refusals(input_type: str, output_type: str, profile: str, error: type[RequantError], says: str) -> None:
    with pytest.raises(error) as caught:
        plan_quantize(tensor(input_type), parse_type(output_type), profile)
    assert says in caught.value.detail


def test_dynamic_and_unranked_outputs_take_the_inputs_shape() -> None:
    for text in ("tensor<?x3x!quant.uniform<i8:f32, 1.0>>", "tensor<*x!quant.uniform<i8:f32, 1.0>>"):
        assert plan_quantize(tensor("tensor<2x3xf32>"), parse_type(text)).output_type.shape == (2, 3)


@pytest.mark.parametrize(("profile", "storage"), [("onnx", "i32"), ("litert", "i16")])
def test_zero_points_that_the_real_system_refuses(profile: str, storage: str) -> None:
    with pytest.raises(UnsupportedError, match="zero point"):
        plan_dequantize(tensor(f"tensor<4x!quant.uniform<{storage}:f32, 1.0:1>>"), None, profile)


def test_infinity_minus_infinity_is_a_nan_without_a_sign() -> None:
    """65535 is infinite in f16. Hardware gives the difference a sign, constant folders do not."""
    plan = plan_dequantize(tensor("tensor<3x!quant.uniform<u16:f16, 1.0:65535>>"), None, "torch_decomposed")
    target = np.empty(3, np.float16)
    plan.run(np.array([65535, 65534, 0], np.uint16), target)
    assert target.view("<u2").tolist() == [0x7E00, 0x7E00, 0xFC00]


@pytest.mark.parametrize(
    ("nan", "last"),
    [(NanPolicy.PROFILE, -7), (NanPolicy.LOWEST, -7), (NanPolicy.ZERO_POINT, 2)],
)
def test_the_last_of_an_odd_number_of_4_bits(nan: NanPolicy, last: int) -> None:
    """onnxruntime converts it alone. Bounds and the choice for NaN are as anywhere else; the counts are of what became
    of it."""
    plan = plan_quantize(tensor("tensor<3xf32>"), parse_type("!quant.uniform<i4<-7:7>:f32, 1.0:2>"), "onnx", nan=nan)
    stored = np.empty(3, np.int8)
    report = plan.run(np.array([3e10, 3e10, 3e10], np.float32), stored)
    assert stored.tolist() == [7, 7, -7]
    assert (report.saturated_low, report.saturated_high, report.nan) == (1, 2, 0)
    report = plan.run(np.array([1, -3e10, np.nan], np.float32), stored)
    assert stored.tolist() == [3, -7, last]
    assert (report.saturated_low, report.saturated_high, report.nan) == (1, 0, 1)


def test_a_nan_that_is_an_error_is_one_in_a_split_byte_too() -> None:
    plan = plan_quantize(
        tensor("tensor<3xf32>"), parse_type("!quant.uniform<u4:f32, 1.0:2>"), "onnx", nan=NanPolicy.ERROR
    )
    with pytest.raises(PreconditionError) as caught:
        plan.run(np.array([3e10, 1, np.nan], np.float32), np.empty(3, np.uint8))
    assert caught.value.index == 2
