"""matmul and conv2d against LiteRT: FULLY_CONNECTED, BATCH_MATMUL, CONV_2D and DEPTHWISE_CONV_2D.

The reference kernels, and XNNPACK as the default interpreter runs it. Scales of powers of two make ties of every
fourth sum and more; others have all of their bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from requant.integer.conv2d import plan_conv2d
from requant.integer.matmul import plan_matmul
from requant.mlir import parse_type
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile as profile_row
from tests.interop.conformance.subject import scheme as scheme_row
from tests.interop.integer.quantized_tensors import Array, Quantized, per_axis, per_tensor, run_product, tensor
from tests.oracles import schemes as scheme_oracle

pytest.importorskip("ai_edge_litert")

from ai_edge_litert.interpreter import OpResolverType

from tests.interop.integer.litert_operators import (
    batch_matmul,
    blockwise_fully_connected,
    convolution,
    fully_connected,
    window_of,
)
from tests.interop.litert_models import DEFAULT, REFERENCE, run_inputs

pytestmark = pytest.mark.interop

SYSTEMS = [("litert", REFERENCE), ("litert_xnnpack", DEFAULT)]
CASES = 24


def scale(rng: np.random.Generator) -> float:
    return float(np.float32(2.0 ** rng.integers(-6, 0) if rng.random() < 0.5 else rng.uniform(0.004, 0.9)))


def weight_scales(rng: np.random.Generator, count: int) -> Array:
    if rng.random() < 0.5:
        return (2.0 ** rng.integers(-7, -1, count)).astype(np.float32)
    return rng.uniform(0.002, 0.05, count).astype(np.float32)


def symmetric_weights(rng: np.random.Generator, *shape: int, storage: str = "i8") -> Array:
    """Without the lowest, or of less than a byte with it."""
    half = 1 << (int(storage[1:]) - 1)
    return rng.integers(1 - half if storage == "i8" else -half, half, shape).astype(np.int8)


def output_like(rng: np.random.Generator, storage: str, sums: Array, per_sum: float) -> Quantized:
    """An output whose bounds most sums lie within."""
    reach = max(float(np.abs(sums).max()) * per_sum / (100 if storage == "i8" else 25000), 1e-6)
    exact = 2.0 ** np.ceil(np.log2(reach)) if rng.random() < 0.5 else reach
    return per_tensor(storage, float(np.float32(exact)), 0 if storage == "i16" else int(rng.integers(-128, 128)))


@pytest.mark.parametrize("of_weights", ["i8", "i4", "i2"])
@pytest.mark.parametrize(("profile", "resolver"), SYSTEMS)
def test_fully_connected(profile: str, resolver: Any, of_weights: str) -> None:
    """Per tensor and per channel, with a bias; with what XNNPACK does not take too: a zero point of weights of 8 bits,
    and rows of weights of 4 and 2 bits that do not end with a byte.
    """
    comparison = Comparison(
        f"LiteRT FULLY_CONNECTED i8 by {of_weights}, {profile}",
        systems.LITERT,
        profile_row(profile, "matmul"),
        scheme_row({"litert": "litert_float", "litert_xnnpack": "xnnpack_fp32"}[profile]),
    )
    rng = np.random.default_rng(11)
    for index in range(CASES):
        rows = int(rng.integers(1, 200 if of_weights == "i8" else 800))
        depth, columns = int(rng.integers(1, 200)), int(rng.integers(2, 200))
        x_side = per_tensor("i8", scale(rng), int(rng.integers(-128, 128)))
        scales = weight_scales(rng, 1 if index % 3 == 0 else columns)
        shifted = index % 6 == 0 and of_weights == "i8"
        zeros = rng.integers(-99, 99, 1) if shifted else np.zeros(scales.size, np.int64)
        w_side = per_axis(of_weights, scales, 0, zeros)
        x, w = x_side.data(rng, rows, depth), symmetric_weights(rng, columns, depth, storage=of_weights)
        sums = (x.astype(np.int64) - x_side.zero_points[0]) @ (w.T.astype(np.int64) - zeros)
        y_side = output_like(rng, "i8", sums, float(x_side.scales[0]) * float(scales.max()))
        bias = rng.integers(-5000, 5000, columns).astype(np.int32)
        w_type = per_axis(of_weights, scales, 1, zeros).tensor(depth, columns)
        plan = plan_matmul(x_side.tensor(rows, depth), w_type, y_side.element, profile, bias=tensor(f"{columns}xi32"))
        model = fully_connected(x_side, rows, (w_side, w), y_side, bias, version=12)
        theirs = run_inputs(model, [x], resolver)
        comparison.add(index, sums, run_product(plan, x, w.T, bias), theirs)
    comparison.finish(50_000)


@pytest.mark.parametrize("zero_point", [-128, -1, 0, 127])
@pytest.mark.parametrize(("profile", "resolver"), SYSTEMS)
def test_sums_beside_the_bounds_of_int32(profile: str, resolver: Any, zero_point: int) -> None:
    """The scaled sum within a zero point of -2^31 and 2^31, by a factor of about 100: the bias alone makes it."""
    ends = [round(end / 100) + offset for end in (-(2**31), 2**31) for offset in range(-2, 3)]
    x_side = per_tensor("i8", 0.0123, 5)
    exact = float(x_side.scales[0]) * 0.015625 / 100.0
    y_side = per_tensor("i8", float(np.float32(exact)), zero_point)
    factor = float(x_side.scales[0]) * 0.015625 / float(y_side.scales[0])
    bias = np.array([each for each in ends if abs(each * factor) < 2**31 - 1], np.int32)
    w_side = per_axis("i8", np.full(bias.size, 0.015625, np.float32), 0)
    x, w = np.full((1, 4), 5, np.int8), np.ones((bias.size, 4), np.int8)
    w_type = per_axis("i8", np.full(bias.size, 0.015625, np.float32), 1).tensor(4, bias.size)
    plan = plan_matmul(x_side.tensor(1, 4), w_type, y_side.element, profile, bias=tensor(f"{bias.size}xi32"))
    model = fully_connected(x_side, 1, (w_side, w), y_side, bias, version=12)
    theirs = run_inputs(model, [x], resolver)
    assert run_product(plan, x, w.T, bias).tolist() == np.asarray(theirs).tolist()


@pytest.mark.parametrize(
    ("bias_type", "of_weights"), [(None, "i8"), ("i32", "i8"), ("i64", "i8"), ("i64", "i4"), ("i64", "i2")]
)
@pytest.mark.parametrize(("profile", "resolver"), SYSTEMS)
def test_fully_connected_of_16_bits(profile: str, resolver: Any, bias_type: str | None, of_weights: str) -> None:
    """By 8 bits or less, per tensor and per channel. XNNPACK leaves them to kernels that differ by the bias."""
    used = "litert_float" if profile == "litert" or bias_type == "i64" else "arm_vector"
    comparison = Comparison(
        f"LiteRT FULLY_CONNECTED i16 by {of_weights}, bias {bias_type}, {profile}",
        systems.LITERT,
        profile_row(profile, "matmul"),
        scheme_row(used),
    )
    rng = np.random.default_rng(15)
    for index in range(CASES):
        rows, depth, columns = int(rng.integers(1, 300)), int(rng.integers(1, 200)), int(rng.integers(2, 300))
        x_side = per_tensor("i16", scale(rng))
        scales = weight_scales(rng, 1 if index % 2 == 0 else columns)
        x, w = x_side.data(rng, rows, depth), symmetric_weights(rng, columns, depth, storage=of_weights)
        sums = x.astype(np.int64) @ w.T.astype(np.int64)
        y_side = output_like(rng, "i16", sums, float(x_side.scales[0]) * float(scales.max()))
        bias = None
        if bias_type is not None:
            bias = rng.integers(-5000, 5000, columns).astype(np.int64 if bias_type == "i64" else np.int32)
        plan = plan_matmul(
            x_side.tensor(rows, depth), per_axis(of_weights, scales, 1).tensor(depth, columns), y_side.element, profile,
            bias=None if bias is None else tensor(f"{columns}x{bias_type}"),
        )  # fmt: skip
        model = fully_connected(x_side, rows, (per_axis(of_weights, scales, 0), w), y_side, bias, version=12)
        comparison.add(index, sums, run_product(plan, x, w.T, bias), run_inputs(model, [x], resolver))
    comparison.finish(200_000)


@pytest.mark.parametrize(("depth", "expected"), [(2, 0), (3, 1)])
def test_one_more_input_of_0_changes_a_layer_of_4_bits(depth: int, expected: int) -> None:
    """litert-int4-depth in docs/errata.md."""
    x = np.eye(1, depth, dtype=np.int8)
    sides = per_tensor("i8", 1.0), (per_axis("i4", np.ones(1, np.float32), 0), x), per_tensor("i8", 2.0)
    assert (
        run_inputs(fully_connected(sides[0], 1, *sides[1:], np.zeros(1, np.int32), version=12), [x], DEFAULT)
        == expected
    )


@pytest.mark.parametrize(
    ("resolver", "close"),
    [(REFERENCE, False), (DEFAULT, True), (OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, True)],
)
def test_weights_in_blocks(resolver: Any, close: bool) -> None:
    """litert-blockwise in docs/errata.md: the reference kernels return zeros, the others about the product."""
    rng = np.random.default_rng(18)
    x, w = rng.normal(size=(3, 64)).astype(np.float32), rng.integers(-8, 8, (5, 64)).astype(np.int8)
    scales = rng.uniform(0.01, 0.1, (5, 2)).astype(np.float16)
    product = x @ (w * np.repeat(scales.astype(np.float32), 32, axis=1)).T
    found = run_inputs(blockwise_fully_connected(3, w, scales), [x], resolver)
    assert np.allclose(found, product, atol=0.1) if close else not found.any()


@pytest.mark.parametrize("storage", ["i8", "i16"])
@pytest.mark.parametrize(("profile", "resolver"), SYSTEMS)
def test_batch_matmul(profile: str, resolver: Any, storage: str) -> None:
    """In fixed point but for XNNPACK; 16 bits by 16 are summed in 64."""
    comparison = Comparison(f"LiteRT BATCH_MATMUL {storage}, {profile}", systems.LITERT, profile_row(profile, "matmul"))
    rng = np.random.default_rng(12)
    for index in range(CASES):
        batch, rows, depth, columns = (int(each) for each in rng.integers(2, 40, 4))
        zeros = (0, 0) if storage == "i16" else rng.integers(-128, 128, 2).tolist()
        a_side, b_side = (per_tensor(storage, scale(rng), zero) for zero in zeros)
        a, b = a_side.data(rng, batch, rows, depth), b_side.data(rng, batch, depth, columns)
        sums = np.matmul(a.astype(np.int64) - a_side.zero_points[0], b.astype(np.int64) - b_side.zero_points[0])
        y_side = output_like(rng, storage, sums, float(a_side.scales[0]) * float(b_side.scales[0]))
        plan = plan_matmul(
            a_side.tensor(batch, rows, depth), b_side.tensor(batch, depth, columns), y_side.element, profile
        )
        theirs = run_inputs(batch_matmul((a_side, b_side, y_side), a, b), [a, b], resolver)
        comparison.add(index, sums, run_product(plan, a, b), theirs)
    comparison.finish(100_000)


def rows_with_sums(sums: Array, depth: int) -> Array:
    """Rows of i8 whose product with a column of 127, and a last 1, are these sums."""
    quotients, rests = np.divmod(sums, 127)
    found = np.zeros((sums.size, depth), np.int64)
    found[:, -1] = rests
    found[:, :-1] = quotients[:, None] // (depth - 1)
    for row, left in enumerate((quotients % (depth - 1)).tolist()):
        found[row, :left] += 1
    assert np.abs(found).max() <= 127
    return found.astype(np.int8)


def in_fixed_point(sums: Array, factor: float) -> Array:
    """LiteRT MultiplyByQuantizedMultiplier, double rounding, for a factor below 1."""
    derived = scheme_oracle.derive("litert", factor)
    assert derived is not None
    high = (sums * derived.multiplier + (1 << 30)) >> 31
    half = 1 << (-derived.shift - 1)
    return np.where(high >= 0, (high + half) >> -derived.shift, -((half - high) >> -derived.shift))


def test_the_factor_of_batch_matmul() -> None:
    """f64(f32(s_a * s_b)) / s_y, told from the f64 product by sums between the ties of both."""
    comparison = Comparison(
        "LiteRT BATCH_MATMUL i8, sums that tell factors apart", systems.LITERT, profile_row("litert", "matmul")
    )
    rng = np.random.default_rng(14)
    depth, told_apart = 600, 0
    for index in range(24):
        s_a, s_b = (float(np.float32(each)) for each in rng.uniform(0.01, 0.5, 2))
        s_y = float(np.float32(s_a * s_b * 4e6 / 120))
        exact, rounded = s_a * s_b / s_y, float(np.float32(s_a) * np.float32(s_b)) / s_y
        sums = np.arange(-4_000_000, 4_000_001)
        differing = sums[in_fixed_point(sums, exact) != in_fixed_point(sums, rounded)][:64]
        if differing.size == 0:
            continue
        told_apart += differing.size
        a = rows_with_sums(differing, depth)[None]
        b = np.full((1, depth, 1), 127, np.int8)
        b[0, -1] = 1
        a_side, b_side, y_side = (per_tensor("i8", each) for each in (s_a, s_b, s_y))
        plan = plan_matmul(a_side.tensor(*a.shape), b_side.tensor(*b.shape), y_side.element, "litert")
        model, ours = batch_matmul((a_side, b_side, y_side), a, b), run_product(plan, a, b)
        comparison.add(index, differing.reshape(ours.shape), ours, run_inputs(model, [a, b], REFERENCE))
    comparison.finish(20)
    assert told_apart > 20


def test_the_factor_of_fully_connected_of_16_bits() -> None:
    """f64(f32(s_x * s_w)) / s_y per tensor, and the f64 product per channel, told apart by sums."""
    comparison = Comparison(
        "LiteRT FULLY_CONNECTED i16, sums that tell factors apart", systems.LITERT, profile_row("litert", "matmul")
    )
    rng = np.random.default_rng(16)
    depth = 600
    for index in range(24):
        s_x, s_w = (float(np.float32(each)) for each in rng.uniform(0.01, 0.5, 2))
        s_y = float(np.float32(s_x * s_w * 2.0**30 / 30000))
        exact, rounded = s_x * s_w / s_y, float(np.float32(s_x) * np.float32(s_w)) / s_y
        sums = rng.integers(-(2**30), 2**30, 400_000)
        differing = sums[in_fixed_point(sums, exact) != in_fixed_point(sums, rounded)][:40]
        if differing.size == 0:
            continue
        x = np.zeros((differing.size, depth), np.int64)
        x[:, :-1] = (differing // 127 // (depth - 1))[:, None]
        x[:, 0] += differing // 127 % (depth - 1)
        x[:, -1] = differing % 127
        w = np.full((2, depth), 127, np.int8)
        w[:, -1] = 1
        assert np.array_equal(x @ w[0].astype(np.int64), differing)
        x_side, y_side = per_tensor("i16", s_x), per_tensor("i16", s_y)
        for columns in (1, 2):
            scales = np.full(columns, s_w, np.float32)
            plan = plan_matmul(
                x_side.tensor(*x.shape), per_axis("i8", scales, 1).tensor(depth, 2), y_side.element, "litert_xnnpack"
            )
            model = fully_connected(x_side, x.shape[0], (per_axis("i8", scales, 0), w), y_side, version=11)
            ours = run_product(plan, x.astype(np.int16), w.T)
            theirs = run_inputs(model, [x.astype(np.int16)], DEFAULT)
            comparison.add((index, columns), np.repeat(differing[:, None], 2, axis=1), ours, theirs)
    comparison.finish(1000)


@pytest.mark.parametrize(
    ("profile", "resolver", "storage", "bias_type", "of_weights"),
    [
        *((*system, "i8", "i32", "i8") for system in SYSTEMS),
        *((*system, "i8", "i32", "i4") for system in SYSTEMS),
        *((*system, "i16", "i64", "i8") for system in SYSTEMS),
        *((*system, "i16", "i32", "i8") for system in SYSTEMS),
    ],
)
@pytest.mark.parametrize("depthwise", [False, True], ids=["conv", "depthwise"])
def test_conv2d(profile: str, resolver: Any, storage: str, bias_type: str, of_weights: str, depthwise: bool) -> None:
    """Per channel, with strides, dilations and both paddings; 8-bit inputs, also by weights of 4 bits, which XNNPACK
    leaves, and 16-bit ones with either bias.
    """
    if depthwise and bias_type == "i32" and storage == "i16":
        pytest.skip("DEPTHWISE_CONV_2D takes a 64-bit bias with 16-bit inputs")
    if depthwise and profile == "litert_xnnpack" and of_weights == "i4":
        pytest.skip("the optimized kernel rounds the last channels otherwise")
    operator = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    undelegated = "xnnpack_fp32" if storage == of_weights == "i8" else "arm_vector"
    used = "litert_int64" if bias_type == "i64" else "litert" if profile == "litert" else undelegated
    comparison = Comparison(
        f"LiteRT {operator} {storage} by {of_weights}, bias {bias_type}, {profile}",
        systems.LITERT,
        profile_row(profile, "conv2d"),
        scheme_row(used),
    )
    rng = np.random.default_rng(13)
    for index in range(CASES):
        n, height, width, channels = 1, int(rng.integers(7, 30)), int(rng.integers(7, 30)), int(rng.integers(2, 12))
        multiplier = int(rng.integers(1, 3)) if depthwise else None
        outputs = channels * multiplier if multiplier is not None else int(rng.integers(2, 40))
        window = window_of(rng, channels if depthwise else 1)
        x_side = per_tensor(storage, scale(rng), 0 if storage == "i16" else int(rng.integers(-128, 128)))
        scales = weight_scales(rng, outputs)
        axis = 3 if depthwise else 0
        w_shape = (1, 3, 2, outputs) if depthwise else (outputs, 3, 2, channels)
        x, w = x_side.data(rng, n, height, width, channels), symmetric_weights(rng, *w_shape, storage=of_weights)
        bias = rng.integers(-5000, 5000, outputs).astype(np.int64 if bias_type == "i64" else np.int32)
        arguments = x_side.tensor(*x.shape), per_axis(of_weights, scales, axis).tensor(*w_shape)
        bias_tensor = tensor(f"{outputs}x{bias_type}")
        sums = run_product(plan_conv2d(*arguments, parse_type("i64"), window=window), x, w)
        y_side = output_like(rng, storage, sums, float(x_side.scales[0]) * float(scales.max()))
        plan = plan_conv2d(*arguments, y_side.element, profile, window=window, bias=bias_tensor)
        model = convolution(
            (x_side, x.shape), (per_axis(of_weights, scales, axis), w), (y_side, sums.shape), bias, window,
            multiplier=multiplier,
        )  # fmt: skip
        comparison.add((index, window), sums, run_product(plan, x, w, bias), run_inputs(model, [x], resolver))
    comparison.finish(20_000)
