"""conv2d against a direct convolution in exact integers, and the vectors."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager, nullcontext
from time import thread_time
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requant.errors import ParameterError, PreconditionError, RequantError, TypeFitError, UnsupportedError
from requant.integer.accumulation import Integers
from requant.integer.conv2d import Conv2d, Layout, Padding, WeightsLayout, Window, conv2d_integers, plan_conv2d
from requant.integer.matmul import plan_matmul
from requant.integer.trace import trace_product
from requant.mlir import parse_type
from requant.profiles.rule import Accumulator, SumOverflow
from tests.core.integer.test_matmul import PROFILES, bounds_of, quantized, real, sides
from tests.oracles import contractions as product_oracle
from tests.oracles.contractions import Side
from tests.support.cases import EXHAUSTIVE, examples
from tests.support.drawn_types import tensor
from tests.vector_cases import load

Array = np.ndarray[Any, Any]


def same_pads(size: int, kernel: int, stride: int, dilation: int, *, lower: bool) -> tuple[int, int]:
    """A convolution in Python's integers."""
    total = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return (total - total // 2, total // 2) if lower else (total // 2, total - total // 2)


def direct(x: Array, w: Array, zx: int, zw: Array, strides: Any, dilations: Any, pads: Any, groups: int) -> Array:
    """x: NHWC, w: OHWI; exact in int64, tap by tap, padded taps skipped."""
    n, height, width, _ = x.shape
    outputs, tall, wide, depth = w.shape
    top, left, bottom, right = pads
    rows = (height + top + bottom - (tall - 1) * dilations[0] - 1) // strides[0] + 1
    columns = (width + left + right - (wide - 1) * dilations[1] - 1) // strides[1] + 1
    found = np.zeros((n, rows, columns, outputs), np.int64)
    a, b = x.astype(np.int64) - zx, w.astype(np.int64) - np.asarray(zw).reshape(-1, 1, 1, 1)
    for y, c, i, j in itertools.product(range(rows), range(columns), range(tall), range(wide)):
        row, column = y * strides[0] + i * dilations[0] - top, c * strides[1] + j * dilations[1] - left
        if 0 <= row < height and 0 <= column < width:
            for g in range(groups):
                of_group = slice(g * (outputs // groups), (g + 1) * (outputs // groups))
                found[:, y, c, of_group] += a[:, row, column, g * depth : (g + 1) * depth] @ b[of_group, i, j].T
    return found


def arranged(x: Array, w: Array, window: Window) -> tuple[Array, Array]:
    order = ["NHWC".index(each) for each in window.layout]
    of_weights = ["OHWI".index(each) for each in window.weights_layout]
    return np.ascontiguousarray(x.transpose(order)), np.ascontiguousarray(w.transpose(of_weights))


def taking(way: str) -> AbstractContextManager[object]:
    """Make one of the two ways the cheaper one, where it can be taken at all."""
    if way == "cheaper":
        return nullcontext()
    other = "_direct_cost" if way == "tiled" else "_tiled_cost"
    return mock.patch.object(Conv2d, other, property(lambda _: 1 << 62))


@settings(max_examples=examples(400))
@given(data=st.data())
def test_sums_are_exact(data: st.DataObject) -> None:
    """Any shape, stride, dilation, padding, groups, layout, dtype and accumulator."""
    draw = data.draw
    of_x, of_w = (np.dtype(draw(st.sampled_from(("i1", "u1", "i2", "u2")))) for _ in range(2))
    groups, depth, each = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 33]))
    height, width, tall, wide = (draw(st.integers(1, 7)) for _ in range(4))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    padding = draw(st.sampled_from(Padding))
    pads = (0, 0, 0, 0)
    if padding is Padding.EXPLICIT:
        pads = draw(st.tuples(*[st.integers(0, draw(st.sampled_from([6, 16])))] * 4))
    window = Window(
        layout=draw(st.sampled_from(Layout)),
        weights_layout=draw(st.sampled_from(WeightsLayout)),
        strides=strides, dilations=dilations, padding=padding, pads=pads, groups=groups,
    )  # fmt: skip
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    limits_x, limits_w = (np.iinfo(each.name) for each in (of_x, of_w))
    x = rng.integers(limits_x.min, limits_x.max + 1, (draw(st.integers(1, 2)), height, width, groups * depth)).astype(
        of_x
    )
    w = rng.integers(limits_w.min, limits_w.max + 1, (groups * each, tall, wide, depth)).astype(of_w)
    zx = int(rng.integers(limits_x.min, limits_x.max + 1))
    zw = rng.integers(limits_w.min, limits_w.max + 1, groups * each if draw(st.booleans()) else 1)
    accumulator = draw(st.sampled_from(Accumulator))
    used = pads
    if padding in (Padding.SAME_UPPER, Padding.SAME_LOWER):
        lower = padding is Padding.SAME_LOWER
        vertical = same_pads(height, tall, strides[0], dilations[0], lower=lower)
        horizontal = same_pads(width, wide, strides[1], dilations[1], lower=lower)
        used = (vertical[0], horizontal[0], vertical[1], horizontal[1])
    arrays = arranged(x, w, window)
    if (
        height + used[0] + used[2] < (tall - 1) * dilations[0] + 1
        or width + used[1] + used[3] < (wide - 1) * dilations[1] + 1
    ):
        with pytest.raises(TypeFitError):
            conv2d_integers(*arrays, zx, zw, window=window)
        return
    with taking(draw(st.sampled_from(["cheaper", "tiled", "direct"]))):
        found = conv2d_integers(*arrays, zx, zw, window=window, accumulator=accumulator)
    expected = direct(x, w, zx, zw, strides, dilations, used, groups)
    expected = expected.transpose(["NHWC".index(letter) for letter in window.layout])
    dtype = np.int32 if accumulator is Accumulator.I32 else np.int64
    assert found.dtype == dtype
    assert np.array_equal(found, expected.astype(dtype))


@pytest.mark.exhaustive
def test_many_pixels_and_channels() -> None:
    """More than a block of rows, more than a tile of columns, and depthwise with a multiplier of 1 and of 2."""
    rng = np.random.default_rng(6)
    x = rng.integers(-128, 128, (2, 61, 53, 24)).astype(np.int8)
    for groups, outputs in ((1, 70), (1, 5), (24, 24), (24, 48), (2, 66)) if EXHAUSTIVE else ((1, 70), (24, 48)):
        w = rng.integers(-128, 128, (outputs, 3, 3, 24 // groups)).astype(np.int8)
        window = Window(strides=(2, 1), padding=Padding.SAME_UPPER, groups=groups)
        top, bottom = same_pads(61, 3, 2, 1, lower=False)
        expected = direct(x, w, 7, np.array([0]), (2, 1), (1, 1), (top, 1, bottom, 1), groups)
        for way in ("cheaper", "tiled", "direct"):
            with taking(way):
                assert np.array_equal(conv2d_integers(x, w, 7, window=window), expected)


@settings(max_examples=examples(150))
@given(data=st.data())
def test_every_profile_against_integers(data: st.DataObject) -> None:
    """Per tensor and per channel, with a bias, in both layouts; the stages too."""
    draw = data.draw
    profile = draw(st.sampled_from(PROFILES))
    of_x, of_w, of_y = (
        draw(st.sampled_from(storages)) for storages in (("i8", "u8", "i16"), ("i8", "u8", "i4"), ("i8", "u8"))
    )
    groups, each = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    outputs = groups * each
    x_side, y_side = draw(sides(of_x, 1)), draw(sides(of_y, 1))
    w_side = draw(sides(of_w, outputs if draw(st.booleans()) else 1))
    undelegated = product_oracle.is_undelegated(profile, of_x, of_w, w_side.zeros)
    window = Window(
        layout=draw(st.sampled_from(Layout)), weights_layout=draw(st.sampled_from(WeightsLayout)), pads=(1, 0, 0, 1),
        groups=groups,
    )  # fmt: skip
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.integers(*bounds_of(of_x), (1, 2, 2, groups * 2), endpoint=True)
    w = rng.integers(*bounds_of(of_w), (outputs, 2, 2, 2), endpoint=True)
    bias = draw(st.lists(st.integers(-(10**6), 10**6), min_size=outputs, max_size=outputs))
    arrays = arranged(x, w, window)
    shapes = ["x".join(map(str, array.shape)) for array in arrays]
    axis = window.weights_layout.index("O")
    expected: list[int | None] = []
    sums = direct(x, w, x_side.zeros[0], np.array(w_side.zeros), (1, 1), (1, 1), (1, 0, 0, 1), groups)
    channel_axis = window.layout.index("C")
    ordered = sums.transpose(["NHWC".index(letter) for letter in window.layout])
    for place in np.ndindex(*ordered.shape):
        o = place[channel_axis]
        arguments = (
            int(ordered[place]) + bias[o], x_side.scale(0), w_side.scale(o), y_side.scale(0), y_side.zero(0),
            bounds_of(of_y),
        )  # fmt: skip
        if profile == "onednn":
            expected.append(product_oracle.onednn(*arguments))
        else:
            scheme = product_oracle.output_stage(profile, "conv2d", undelegated=undelegated)
            expected.append(product_oracle.scaled(scheme, *arguments))
    try:
        plan = plan_conv2d(
            tensor(f"tensor<{shapes[0]}x{quantized(of_x, x_side, 0)}>"),
            tensor(f"tensor<{shapes[1]}x{quantized(of_w, w_side, axis)}>"),
            parse_type(quantized(of_y, y_side, 0)),
            profile,
            window=window,
            bias=tensor(f"tensor<{outputs}xi32>"),
        )
    except ParameterError:
        assert None in expected
        return
    target = np.empty(len(expected), plan.output_dtype)
    given = [array.astype(integers.dtype).ravel() for array, integers in
             zip(arrays, (plan.accumulation.lhs, plan.accumulation.rhs), strict=True)]  # fmt: skip
    added = np.array(bias, np.int32)
    if None in expected:
        with pytest.raises(PreconditionError):
            plan.run(given[0], given[1], added, target)
        return
    with taking(draw(st.sampled_from(["cheaper", "tiled", "direct"]))):
        plan.run(given[0], given[1], added, target)
        traced = trace_product(plan, given[0], given[1], added, target)
    assert target.tolist() == expected
    stages = {stage.name: stage.elements for stage in traced.stages}
    assert np.array_equal(stages["corrected"], ordered.ravel())
    corrections = ("accumulator", "lhs_zero_point_correction", "rhs_zero_point_correction", "zero_points_correction")
    assert np.array_equal(sum(stages[name] for name in corrections), stages["corrected"])
    if "after_zero_point" in stages:
        assert np.array_equal(np.clip(stages["after_zero_point"], *bounds_of(of_y)), target)


def test_the_index_of_an_error_is_that_of_the_output() -> None:
    """NCHW: the second channel of the second pixel is element 3 of the output, and the fourth sum in memory."""
    window = Window(layout=Layout.NCHW, weights_layout=WeightsLayout.OIHW)
    plan = plan_conv2d(
        tensor("tensor<1x1x1x3xi8>"), tensor("tensor<2x1x1x1xi8>"), parse_type("i32"), window=window,
        bias=tensor("tensor<2xi32>"), overflow=SumOverflow.ERROR,
    )  # fmt: skip
    bias, x = np.array([0, 2**31 - 1], np.int32), np.array([0, 1, 0], np.int8)
    with pytest.raises(PreconditionError) as caught:
        plan.run(x, np.ones(2, np.int8), bias, np.empty(6, np.int32))
    assert caught.value.index == 4


class TestCost:
    """What lies on padding costs nothing, and what the limit is asked about follows the way that is taken."""

    def of(
        self, x: tuple[int, ...], w: tuple[int, ...], window: Window, dtype: type[np.integer[Any]] = np.int8
    ) -> Conv2d:
        lhs, rhs = (Integers.of_array(np.broadcast_to(np.array(1, np.int8), shape)) for shape in (x, w))
        return Conv2d.of(lhs, rhs, window, Accumulator.I32, SumOverflow.WRAP)

    @settings(max_examples=examples(300))
    @given(*[st.integers(1, 9)] * 2, st.integers(1, 12), *[st.integers(0, 40)] * 3, st.sampled_from(Padding))
    def test_taps_inside(
        self, stride: int, dilation: int, kernel: int, size: int, before: int, after: int, padding: Padding
    ) -> None:
        pads = (before, 0, after, 0) if padding is Padding.EXPLICIT else (0, 0, 0, 0)
        window = Window(strides=(stride, 1), dilations=(dilation, 1), padding=padding, pads=pads)
        try:
            outputs, above = window.placed(size, kernel, 0)
        except TypeFitError:
            return
        places = itertools.product(range(outputs), range(kernel))
        expected = sum(0 <= y * stride + i * dilation - above < size for y, i in places)
        assert window.taps_inside(size, kernel, 0) == expected

    def test_a_pixel_in_wide_padding(self) -> None:
        """130 seconds of CPU when the padding was multiplied: now as many products as the kernel has taps."""
        pads = Window(pads=(2048,) * 4)
        sums = self.of((1, 1, 1, 1), (1, 16, 32, 1), pads)
        assert sums.products > 1 << 32
        assert sums.cost < 1 << 30
        rng = np.random.default_rng(2)
        w = rng.integers(-128, 128, (1, 16, 32, 1)).astype(np.int8)
        begun = thread_time()
        found = conv2d_integers(np.array([[[[100]]]], np.int8), w, -27, 3, window=pads)
        assert thread_time() - begun < 2
        expected = np.zeros_like(found)
        expected[0, 2048 - 15 : 2049, 2048 - 31 : 2049, 0] = 127 * (w[0, ::-1, ::-1, 0].astype(np.int64) - 3)
        assert np.array_equal(found, expected)

    def test_dimensions_that_no_tensor_has(self) -> None:
        """The cost is asked for before any element is there."""
        window = Window(strides=(3, 7), dilations=(5, 2), pads=(2**31 - 1,) * 4)
        assert self.of((1, 10**9, 10**9, 1), (1, 10**8, 10**8, 1), window).cost > 1 << 80

    def test_narrow_windows_cost_more_than_their_products(self) -> None:
        """One channel to one: a tile would be empty but for a 64th."""
        sums = self.of((1, 2048, 2048, 1), (1, 3, 3, 1), Window())
        assert sums.cost > 3 * sums.products
        assert self.of((1, 64, 64, 64), (64, 3, 3, 64), Window()).cost < 2 * 62 * 62 * 9 * 64 * 64


class TestVectors:
    """qgemm_conv.json: what onnxruntime, the reference evaluator and LiteRT gave."""

    def test_conv_integer(self) -> None:
        cases = load("qgemm_conv")["onnx_conv_integer"]
        for case in cases:
            x = np.array(case["x"]).astype(np.uint8).reshape(case["x_shape"])
            w = np.array(case["w"])
            w = w.astype(np.int8 if w.min() < 0 else np.uint8).reshape(case["w_shape"])
            found = conv2d_integers(x, w, case["x_zp"], case.get("w_zp", 0), window=onnx_window(case))
            assert found.shape == tuple(case["y_shape"])
            assert found.ravel().tolist() == case["y"]
        assert len(cases) == 10

    @pytest.mark.parametrize(("profile", "column"), [("onnx", "ort"), ("onnx_reference", "ref")])
    def test_qlinear_conv(self, profile: str, column: str) -> None:
        cases = load("qgemm_conv")["onnx_qlinear_conv"]
        for case in cases:
            weights = np.array(case["w"])
            of_w = "i8" if weights.min() < 0 else "u8"
            zeros = case["w_zp"] if len(case["w_zp"]) == len(case["w_scale"]) else case["w_zp"] * len(case["w_scale"])
            w_side = Side([real(each) for each in case["w_scale"]], zeros)
            plan = plan_conv2d(
                typed(case["x_shape"], quantized("u8", Side([real(case["x_scale"])], [case["x_zp"]]), 0)),
                typed(case["w_shape"], quantized(of_w, w_side, 0)),
                parse_type(quantized("u8", Side([real(case["y_scale"])], [case["y_zp"]]), 0)),
                profile,
                window=onnx_window(case),
                bias=None if case["bias"] is None else tensor(f"tensor<{case['w_shape'][0]}xi32>"),
            )
            target = np.empty(plan.elements, np.uint8)
            bias = None if case["bias"] is None else np.array(case["bias"], np.int32)
            plan.run(np.array(case["x"], np.uint8), weights.astype(plan.accumulation.rhs.dtype), bias, target)
            assert plan.output_type.shape == tuple(case["y_shape"])
            assert target.tolist() == case[column]
        assert len(cases) == 13

    @pytest.mark.parametrize(("profile", "column"), [("litert", "ref"), ("litert_xnnpack", "default")])
    @pytest.mark.parametrize("kind", ["conv2d", "depthwise"])
    def test_litert(self, kind: str, profile: str, column: str) -> None:
        cases = load("qgemm_conv")[f"litert_{kind}_nhwc"]
        for case in cases:
            depthwise = kind == "depthwise"
            shape = case["w_shape_1HWM"] if depthwise else case["w_shape_OHWI"]
            out_scale, out_zero = real(case["out_scale"]), case["out_zp"]
            low, high = activation(case.get("activation", "none"), out_scale, out_zero)
            window = Window(
                weights_layout=WeightsLayout.IHWO if depthwise else WeightsLayout.OHWI,
                strides=tuple(case["stride_hw"]),
                dilations=tuple(case.get("dilation_hw", (1, 1))),
                padding=Padding.SAME_UPPER if case["padding"] == "SAME" else Padding.VALID,
                groups=case["x_shape"][3] if depthwise else case["group"],
            )
            w_side = Side([real(each) for each in case["w_scale"]], [0] * len(case["w_scale"]))
            plan = plan_conv2d(
                typed(case["x_shape"], quantized("i8", Side([real(case["in_scale"])], [case["in_zp"]]), 0)),
                typed(shape, quantized("i8", w_side, 3 if depthwise else 0)),
                parse_type(quantized("i8", Side([out_scale], [out_zero]), 0, (low, high))),
                profile,
                window=window,
                bias=tensor(f"tensor<{len(case['bias'])}xi32>"),
            )
            target = np.empty(plan.elements, np.int8)
            plan.run(
                np.array(case["x"], np.int8), np.array(case["w"], np.int8), np.array(case["bias"], np.int32), target
            )
            assert plan.output_type.shape == tuple(case["y_shape"])
            assert target.tolist() == case[column]
        assert len(cases) == (8 if depthwise else 11)


def activation(name: str, scale: float, zero: int) -> tuple[int, int]:
    """LiteRT CalculateActivationRangeQuantized."""

    def at(value: float) -> int:
        ratio = float(np.float32(value) / np.float32(scale))
        return zero + int(np.floor(abs(ratio) + 0.5) * np.sign(ratio))

    low, high = {"none": (-128, 127), "relu": (at(0), 127), "relu6": (at(0), at(6)), "relu_n1_to_1": (at(-1), at(1))}[
        name
    ]
    return max(low, -128), min(high, 127)


def typed(shape: list[int], element: str) -> Any:
    return tensor(f"tensor<{'x'.join(map(str, shape))}x{element}>")


def onnx_window(case: Any) -> Window:
    return Window(
        layout=Layout.NCHW,
        weights_layout=WeightsLayout.OIHW,
        strides=tuple(case["strides"]),
        dilations=tuple(case["dilations"]),
        pads=tuple(case["pads"]),
        groups=case["group"],
    )


I8 = "!quant.uniform<i8:f32, 1.0>"


@pytest.mark.parametrize(
    ("lhs", "rhs", "window", "error", "side"),
    [
        ("1x3x3xi8", "1x1x1x3xi8", Window(), TypeFitError, "lhs"),
        ("1x3x3x3xi8", "1x1x3xi8", Window(), TypeFitError, "rhs"),
        ("1x3x3x3xi8", "1x1x1x2xi8", Window(), TypeFitError, "rhs"),
        ("1x3x3x4xi8", "3x1x1x2xi8", Window(groups=2), TypeFitError, "rhs"),
        ("1x3x3x3xi8", "0x1x1x3xi8", Window(), TypeFitError, "rhs"),
        ("1x3x3x3xi8", "1x4x1x3xi8", Window(), TypeFitError, "lhs"),
        ("1x3x3x3xi8", "1x2x1x3xi8", Window(dilations=(3, 1), padding=Padding.VALID), TypeFitError, "lhs"),
        ("1x3x3x3xi8", "1x1x1x3xi8", Window(strides=(0, 1)), ParameterError, None),
        ("1x3x3x3xi8", "1x1x1x3xi8", Window(padding=Padding.VALID, pads=(1, 0, 0, 0)), ParameterError, None),
        ("1x3x3x2x!quant.uniform<i8:f32:3, {1.0, 2.0}>", f"1x1x1x2x{I8}", Window(), UnsupportedError, "lhs"),
        (f"1x3x3x2x{I8}", "1x1x1x2x!quant.uniform<i8:f32:3, {1.0, 2.0}>", Window(), UnsupportedError, "rhs"),
    ],
)
def test_refused(lhs: str, rhs: str, window: Window, error: type[RequantError], side: str | None) -> None:
    with pytest.raises(error) as caught:
        plan_conv2d(tensor(f"tensor<{lhs}>"), tensor(f"tensor<{rhs}>"), parse_type("i32"), window=window)
    assert caught.value.side == side


@pytest.mark.parametrize(
    ("lhs", "rhs", "groups", "said"),
    [
        (
            "1x3x3x3xi8",
            "1x1x1x2xi8",
            1,
            "the weights have 2 input channels, and the input has 3 channels (groups is 1)",
        ),
        ("1x3x3x3xi8", "2x1x1x2xi8", 2, "the weights have 2 of each group's input channels, and the input has 3"),
        ("1x3x3x4xi8", "3x1x1x2xi8", 2, "the weights have 3 output channels, which 2 groups do not divide"),
    ],
)
def test_what_does_not_fit_is_said_in_numbers_of_channels(lhs: str, rhs: str, groups: int, said: str) -> None:
    with pytest.raises(TypeFitError) as caught:
        plan_conv2d(tensor(f"tensor<{lhs}>"), tensor(f"tensor<{rhs}>"), parse_type("i32"), window=Window(groups=groups))
    assert said in caught.value.detail


@pytest.mark.parametrize(
    "window",
    [
        {"strides": (1 << 31, 1)},
        {"dilations": (1, 1 << 62)},
        {"pads": (1 << 63, 0, 0, 0), "strides": (1 << 62, 1)},
        {"groups": 1 << 31},
    ],
)
def test_numbers_that_kernels_cannot_multiply(window: dict[str, Any]) -> None:
    """Positions are computed in 64 bits: beyond them, the kernel would read outside of the input."""
    with pytest.raises(ParameterError, match="at most 2147483647"):
        conv2d_integers(np.ones((1, 1, 1, 1), np.int8), np.ones((1, 1, 1, 1), np.int8), window=Window(**window))


def test_litert_has_fixed_point_in_convolutions_only() -> None:
    """-1 times 1/2 is a tie: RNU in the high multiplication gives 0, FULLY_CONNECTED's RNA gives -1 (C.8)."""
    half, one = "!quant.uniform<i8:f32, 0.5>", I8
    convolution = plan_conv2d(
        tensor(f"tensor<1x1x1x1x{half}>"), tensor(f"tensor<1x1x1x1x{one}>"), parse_type(one), window=Window()
    )
    product = plan_matmul(tensor(f"tensor<1x1x{half}>"), tensor(f"tensor<1x1x{one}>"), parse_type(one))
    batched = plan_matmul(tensor(f"tensor<1x1x1x{half}>"), tensor(f"tensor<1x1x1x{one}>"), parse_type(one))
    for plan, expected in ((convolution, 0), (product, -1), (batched, 0)):
        target = np.empty(1, np.int8)
        plan.run(np.array([-1], np.int8), np.array([1], np.int8), None, target)
        assert target.tolist() == [expected]
