"""matmul and conv2d against onnxruntime and the reference evaluator: MatMulInteger, ConvInteger, QLinearMatMul,
QLinearConv.

Where onnxruntime takes fewer zero points than the operator has, only the reference evaluator is asked. Where its sums
of two products saturate, i8 beside u8 have 7 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from requant.integer.conv2d import Layout, WeightsLayout, Window, conv2d_integers, plan_conv2d
from requant.integer.matmul import matmul_integers, plan_matmul
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile as row
from tests.interop.conformance.subject import scheme as scheme_row
from tests.interop.integer.quantized_tensors import DTYPES, Array, Quantized, per_axis, per_tensor, run_product, tensor
from tests.interop.onnxruntime_products import SATURATES, exact_together
from tests.interop.onnxruntime_version import PROFILE

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.interop.integer.onnx_graphs import System, node, parameters, with_onnxruntime, with_reference

pytestmark = pytest.mark.interop

CASES = 12
LIVE = {PROFILE: systems.ONNXRUNTIME, "onnx_reference": systems.ONNX_REFERENCE}
SCHEMES = {PROFILE: "onnxruntime", "onnx_reference": "onnx_reference"}
SYSTEMS = [
    pytest.param(PROFILE, with_onnxruntime, id="onnxruntime"),
    pytest.param("onnx_reference", with_reference, id="reference"),
]


def drawn(rng: np.random.Generator, dtype: np.dtype[Any], *shape: int) -> Array:
    limits = np.iinfo(dtype.name)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def scale(rng: np.random.Generator) -> float:
    return float(np.float32(2.0 ** rng.integers(-6, 0) if rng.random() < 0.5 else rng.uniform(0.004, 0.9)))


def pair(index: int) -> tuple[str, str]:
    """u8 by i8, u8 by u8, i8 by i8: what QLinearMatMul of onnxruntime takes."""
    return (("u8", "i8"), ("u8", "u8"), ("i8", "i8"))[index % 3]


@pytest.mark.parametrize(("profile", "system"), SYSTEMS)
def test_matmul_integer(profile: str, system: System) -> None:
    """Batches; a zero point for each column; with the reference evaluator sums that wrap."""
    comparison = Comparison(f"MatMulInteger, {profile}", LIVE[profile], row(profile, "matmul"))
    rng = np.random.default_rng(21)
    for index in range(CASES):
        of_a, of_b = (DTYPES[each] for each in pair(index))
        deep = index == 5
        rows, depth, columns = (2, 40_000, 3) if deep else (int(each) for each in rng.integers(1, 150, 3))
        batch = () if index % 2 else (3,)
        a, b = drawn(rng, of_a, *batch, rows, depth), drawn(rng, of_b, depth, columns)
        if deep:
            a[...], b[...] = np.iinfo(of_a.name).max, np.iinfo(of_b.name).min
        if profile == PROFILE:
            a, b = exact_together(a, b)
        zero_a = drawn(rng, of_a)
        zero_b = drawn(rng, of_b, columns) if index % 4 == 1 else drawn(rng, of_b)
        inputs = {"a": a, "b": b, "az": zero_a, "bz": zero_b}
        theirs = system(node("MatMulInteger", inputs, np.dtype(np.int32)), inputs)
        ours = matmul_integers(a, b, zero_a, zero_b)
        comparison.add(index, theirs, ours, theirs)
    comparison.finish(50_000)


def output_side(rng: np.random.Generator, storage: str, sums: Array, per_sum: float) -> Quantized:
    reach = float(np.float32(max(float(np.abs(sums).max()) * per_sum / 100, 1e-6)))
    exact = 2.0 ** np.ceil(np.log2(reach)) if rng.random() < 0.5 else reach
    limits = np.iinfo(DTYPES[storage].name)
    return per_tensor(storage, float(np.float32(exact)), int(rng.integers(limits.min, limits.max + 1)))


def weight_side(rng: np.random.Generator, storage: str, count: int, axis: int) -> Quantized:
    limits = np.iinfo(DTYPES[storage].name)
    scales = 2.0 ** rng.integers(-7, -1, count) if rng.random() < 0.5 else rng.uniform(0.002, 0.05, count)
    # onnxruntime takes one zero point for all channels.
    zeros = np.full(count, int(rng.integers(limits.min, limits.max + 1)))
    return per_axis(storage, scales, axis, zeros)


@pytest.mark.parametrize(("profile", "system"), SYSTEMS)
def test_qlinear_matmul(profile: str, system: System) -> None:
    comparison = Comparison(
        f"QLinearMatMul, {profile}", LIVE[profile], row(profile, "matmul"), scheme_row(SCHEMES[profile])
    )
    rng = np.random.default_rng(22)
    for index in range(CASES):
        of_a, of_b = pair(index)
        rows, depth, columns = (int(each) for each in rng.integers(2, 150, 3))
        a_side = per_tensor(of_a, scale(rng), int(drawn(rng, DTYPES[of_a])))
        b_side = weight_side(rng, of_b, columns if index % 2 else 1, 1)
        a, b = a_side.data(rng, rows, depth), b_side.data(rng, depth, columns)
        if profile == PROFILE:
            a, b = exact_together(a, b)
        sums = matmul_integers(a, b, int(a_side.zero_points[0]), b_side.zero_points)
        y_side = output_side(rng, of_a, sums, float(a_side.scales[0]) * float(b_side.scales.max()))
        inputs = {
            "a": a, **parameters("a", a_side, ()),
            "b": b, **parameters("b", b_side, (columns,) if index % 2 else ()),
            **parameters("y", y_side, ()),
        }  # fmt: skip
        theirs = system(node("QLinearMatMul", inputs, DTYPES[of_a]), inputs)
        plan = plan_matmul(a_side.tensor(rows, depth), b_side.tensor(depth, columns), y_side.element, profile)
        comparison.add(index, sums, run_product(plan, a, b), theirs)
    comparison.finish(50_000)


def window(rng: np.random.Generator, groups: int) -> tuple[Window, dict[str, Any]]:
    strides = tuple(int(each) for each in rng.integers(1, 3, 2))
    dilations = tuple(int(each) for each in rng.integers(1, 3, 2))
    pads = tuple(int(each) for each in rng.integers(0, 3, 4))
    used = Window(
        layout=Layout.NCHW, weights_layout=WeightsLayout.OIHW, strides=(strides[0], strides[1]),
        dilations=(dilations[0], dilations[1]), pads=(pads[0], pads[1], pads[2], pads[3]), groups=groups,
    )  # fmt: skip
    return used, {"strides": strides, "dilations": dilations, "pads": pads, "group": groups}


def shapes(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    groups, depth, each = int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.integers(1, 9))
    height, width = (int(size) for size in rng.integers(8, 24, 2))
    return (2, groups * depth, height, width), (groups * each, depth, 3, 2), groups


@pytest.mark.parametrize(("profile", "system"), SYSTEMS)
def test_conv_integer(profile: str, system: System) -> None:
    comparison = Comparison(f"ConvInteger, {profile}", LIVE[profile], row(profile, "conv2d"))
    rng = np.random.default_rng(23)
    for index in range(CASES):
        of_w = DTYPES[("i8", "u8")[index % 2]]
        x_shape, w_shape, groups = shapes(rng)
        used, attributes = window(rng, groups)
        x, w = drawn(rng, DTYPES["u8"], *x_shape), drawn(rng, of_w, *w_shape)
        if profile == PROFILE:
            x, w = exact_together(x, w)
        zero_x, zero_w = drawn(rng, DTYPES["u8"]), drawn(rng, of_w)
        inputs = {"x": x, "w": w, "xz": zero_x, "wz": zero_w}
        theirs = system(node("ConvInteger", inputs, np.dtype(np.int32), **attributes), inputs)
        ours = conv2d_integers(x, w, int(zero_x), int(zero_w), window=used)
        comparison.add((index, used), theirs, ours, theirs.astype(np.int32))
    comparison.finish(20_000)


@pytest.mark.parametrize(("profile", "system"), SYSTEMS)
def test_qlinear_conv(profile: str, system: System) -> None:
    comparison = Comparison(
        f"QLinearConv, {profile}", LIVE[profile], row(profile, "conv2d"), scheme_row(SCHEMES[profile])
    )
    rng = np.random.default_rng(24)
    for index in range(CASES):
        of_w = ("i8", "u8")[index % 2]
        x_shape, w_shape, groups = shapes(rng)
        used, attributes = window(rng, groups)
        outputs = w_shape[0]
        x_side = per_tensor("u8", scale(rng), int(drawn(rng, DTYPES["u8"])))
        w_side = weight_side(rng, of_w, outputs if index % 3 else 1, 0)
        x, w = x_side.data(rng, *x_shape), w_side.data(rng, *w_shape)
        if profile == PROFILE:
            x, w = exact_together(x, w)
        sums = conv2d_integers(x, w, int(x_side.zero_points[0]), w_side.zero_points, window=used)
        y_side = output_side(rng, "u8", sums, float(x_side.scales[0]) * float(w_side.scales.max()))
        bias = rng.integers(-5000, 5000, outputs).astype(np.int32)
        inputs = {
            "x": x, **parameters("x", x_side, ()), "w": w,
            **parameters("w", w_side, (outputs,) if w_side.scales.size > 1 else ()), **parameters("y", y_side, ()),
            "bias": bias,
        }  # fmt: skip
        theirs = system(node("QLinearConv", inputs, DTYPES["u8"], **attributes), inputs)
        plan = plan_conv2d(
            x_side.tensor(*x_shape), w_side.tensor(*w_shape), y_side.element, profile, window=used,
            bias=tensor(f"{outputs}xi32"),
        )  # fmt: skip
        comparison.add((index, used), sums, run_product(plan, x, w, bias), theirs)
    comparison.finish(20_000)


@pytest.mark.skipif(not SATURATES, reason="here onnxruntime's products of u8 and i8 are exact")
def test_pairs_of_products_saturate_without_vnni() -> None:
    """Why i8 have 7 bits above: 2 * 255 * 127 is more than 16 bits hold."""
    a, b = np.full((1, 4), 255, np.uint8), np.full((4, 16), 127, np.int8)
    inputs = {"a": a, "b": b, "az": np.array(0, np.uint8), "bz": np.array(0, np.int8)}
    theirs = with_onnxruntime(node("MatMulInteger", inputs, np.dtype(np.int32)), inputs)
    assert set(theirs.ravel().tolist()) == {2 * (2**15 - 1)}
    assert set(matmul_integers(a, b, inputs["az"], inputs["bz"]).ravel().tolist()) == {4 * 255 * 127}
