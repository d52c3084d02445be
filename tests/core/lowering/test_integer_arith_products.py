"""`requant-to-integer-arith`: dots, convolutions and additions, against exact integers, the service's plans, LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requant.errors import LoweringError, ParameterError, PreconditionError
from requant.integer.add import plan_add
from requant.integer.conv2d import Layout, Padding, WeightsLayout, Window, plan_conv2d
from requant.integer.matmul import plan_matmul
from requant.lowering.passes.requant_to_integer_arith.loops import FIXED_POINT_SCHEMES
from requant.mlir import parse_type
from tests.core.integer.test_conv2d import activation, direct, same_pads
from tests.core.integer.test_matmul import real
from tests.core.lowering.integer_arith import Array, function, integer_module, quantized, run, tensor_type
from tests.oracles import addition as addition_oracle
from tests.oracles import contractions as product_oracle
from tests.support.cases import examples
from tests.support.drawn_types import tensor
from tests.vector_cases import load

SCHEMES = [name for name in FIXED_POINT_SCHEMES if name not in ("xnnpack_cvt8", "xnnpack_gemmlowp")]
BOUNDS = {"i8": (-128, 127), "u8": (0, 255), "i4": (-8, 7), "u4": (0, 15), "i16": (-32768, 32767)}
DTYPES = {"i8": np.int8, "u8": np.uint8, "i4": np.int8, "u4": np.uint8, "i16": np.int16}


def as_number(found: Array, storage: str) -> list[int]:
    width = int(storage[1:])
    flat = found.ravel().astype(np.int64)
    return (flat % (1 << width) if storage[0] == "u" else flat).tolist()


def signless(array: Array, storage: str) -> Array:
    """Stored integers as the module takes them: sub-byte ones extended by their sign."""
    width = int(storage[1:])
    half = 1 << (width - 1)
    return ((array.astype(np.int64) + half) % (2 * half) - half).astype(f"i{max(width // 8, 1)}")


@settings(max_examples=examples(150))
@given(data=st.data())
def test_matmul(data: st.DataObject) -> None:
    """dot and dot_general: zero points on both sides, per column, with and without a bias, in one batch or several."""
    draw = data.draw
    scheme, of_a, of_b, of_y = (draw(st.sampled_from(each)) for each in (SCHEMES, *[("i8", "u8", "i4", "i16")] * 3))
    of_b = of_a
    batch, m, k, n = draw(st.sampled_from((0, 0, 2))), *(draw(st.integers(1, 4)) for _ in range(3))
    as_dot = not batch and draw(st.booleans())
    channels = n if not batch and draw(st.booleans()) else 1
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    a_zero = int(rng.integers(*BOUNDS[of_a]))
    b_zeros = rng.integers(*BOUNDS[of_b], channels).tolist() if as_dot else [0] * channels
    a_scale, y_scale, y_zero = 2.0 ** int(rng.integers(-6, 1)), float(np.float32(rng.uniform(0.1, 9))), 2
    if draw(st.booleans()):
        y_scale = 2.0 ** int(rng.integers(-2, 7))
    b_scales = [float(np.float32(each)) for each in rng.uniform(0.01, 1.0, channels)]
    prefix = (batch,) if batch else ()
    a = rng.integers(*BOUNDS[of_a], (*prefix, m, k), endpoint=True)
    b = rng.integers(*BOUNDS[of_b], (*prefix, k, n), endpoint=True)
    types = (
        tensor_type(a.shape, quantized(of_a, [a_scale], [a_zero])),
        tensor_type(b.shape, quantized(of_b, b_scales, b_zeros, len(prefix) + 1)),
    )
    shape = (*prefix, m, n)
    target = tensor_type(shape, quantized(of_y, [y_scale], [y_zero]))
    numbers = f"contracting_dims = [{len(prefix) + 1}] x [{len(prefix)}]"
    numbers = f"batching_dims = [0] x [0], {numbers}" if batch else numbers
    operation = "stablehlo.dot %a0, %a1" if as_dot else f"stablehlo.dot_general %a0, %a1, {numbers}"
    bias = rng.integers(-(10**5), 10**5, n) if of_a != "i16" and draw(st.booleans()) else None
    signature = f"({types[0]}, {types[1]})"
    given_: list[Array] = [signless(a, of_a), signless(b, of_b)]
    if bias is None:
        text = function(types, [f"%r = {operation} : {signature} -> {target}"], target)
    else:
        sums = [a_scale * each for each in b_scales]
        wide = tensor_type(shape, quantized("i32", sums, [0] * channels, len(prefix) + 1))
        own = tensor_type([n], quantized("i32", sums, [0] * channels, 0))
        lines = [
            f"%s = {operation} : {signature} -> {wide}",
            f"%b = stablehlo.broadcast_in_dim %a2, dims = [{len(prefix) + 1}] : ({own}) -> {wide}",
            f"%t = stablehlo.add %s, %b : {wide}",
            f"%r = stablehlo.uniform_quantize %t : ({wide}) -> {target}",
        ]
        text = function([*types, own], lines, target)
        given_.append(bias.astype(np.int32))
    bias_type = None if bias is None else tensor(f"tensor<{n}xi32>")
    try:
        plan = plan_matmul(tensor(types[0]), tensor(types[1]), parse_type(target), bias=bias_type, scheme=scheme)
        found = run(integer_module(text, f"scheme={scheme}"), given_)
    except ParameterError:
        with pytest.raises(LoweringError):
            integer_module(text, f"scheme={scheme}")
        return
    expected = np.empty(plan.elements, plan.output_dtype)
    try:
        plan.run(
            a.astype(DTYPES[of_a]).ravel(), b.astype(DTYPES[of_b]).ravel(),
            None if bias is None else bias.astype(np.int32), expected,
        )  # fmt: skip
    except PreconditionError:
        return
    assert as_number(found, of_y) == expected.tolist()
    sums_ = np.matmul(a - a_zero, b - np.array(b_zeros)) + (0 if bias is None else bias)
    exact = [
        product_oracle.scaled(scheme, int(acc), a_scale, b_scales[i % n % channels], y_scale, y_zero, BOUNDS[of_y])
        for i, acc in enumerate(sums_.ravel())
    ]
    assert as_number(found, of_y) == exact


@pytest.mark.exhaustive
@settings(max_examples=examples(120))
@given(data=st.data())
def test_conv2d(data: st.DataObject) -> None:
    """Strides, dilations, padding with the zero point, groups, both layouts, zero points on both sides."""
    draw = data.draw
    scheme, of_x, of_y = draw(st.sampled_from(SCHEMES)), *(draw(st.sampled_from(("i8", "u8"))) for _ in range(2))
    groups, depth, each = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    outputs = groups * each
    height, width = (draw(st.integers(2, 5)) for _ in range(2))
    tall, wide = (draw(st.integers(1, 3)) for _ in range(2))
    strides, dilations = (draw(st.tuples(st.integers(1, 2), st.integers(1, 2))) for _ in range(2))
    pads = draw(st.tuples(*[st.integers(0, 3)] * 4))
    layout, weights = draw(st.sampled_from(Layout)), draw(st.sampled_from(WeightsLayout))
    window = Window(layout=layout, weights_layout=weights, strides=strides, dilations=dilations, pads=pads,
                    groups=groups)  # fmt: skip
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    channels = outputs if draw(st.booleans()) else 1
    zx, zw = int(rng.integers(*BOUNDS[of_x])), rng.integers(*BOUNDS[of_x], channels) * int(rng.integers(0, 2))
    x = rng.integers(*BOUNDS[of_x], (draw(st.integers(1, 2)), height, width, groups * depth), endpoint=True)
    w = rng.integers(*BOUNDS[of_x], (outputs, tall, wide, depth), endpoint=True)
    if height + pads[0] + pads[2] < (tall - 1) * dilations[0] + 1:
        return
    if width + pads[1] + pads[3] < (wide - 1) * dilations[1] + 1:
        return
    sx, sy, zy = float(np.float32(rng.uniform(0.01, 1))), float(np.float32(rng.uniform(0.5, 20))), 3
    sw = [float(np.float32(value)) for value in rng.uniform(0.01, 1, channels)]
    sums = direct(x, w, zx, zw, strides, dilations, pads, groups).transpose(["NHWC".index(each) for each in layout])
    arrays = [
        signless(x, of_x).transpose(["NHWC".index(each) for each in layout]),
        signless(w, of_x).transpose(["OHWI".index(each) for each in weights]),
    ]
    types = (
        tensor_type(arrays[0].shape, quantized(of_x, [sx], [zx])),
        tensor_type(arrays[1].shape, quantized(of_x, sw, zw.tolist(), weights.index("O"))),
    )
    target = tensor_type(sums.shape, quantized(of_y, [sy], [zy]))
    text = function(types, [convolution(types, target, window)], target)
    try:
        plan = plan_conv2d(tensor(types[0]), tensor(types[1]), parse_type(target), window=window, scheme=scheme)
    except ParameterError:
        with pytest.raises(LoweringError):
            integer_module(text, f"scheme={scheme}")
        return
    found = run(integer_module(text, f"scheme={scheme}"), arrays)
    expected = np.empty(plan.elements, plan.output_dtype)
    try:
        flat = [np.ascontiguousarray(each).ravel().view(DTYPES[of_x]) for each in arrays]
        plan.run(flat[0], flat[1], None, expected)
    except PreconditionError:
        return
    assert as_number(found, of_y) == expected.tolist()
    places = [place[layout.index("C")] for place in np.ndindex(*sums.shape)]
    assert as_number(found, of_y) == [
        product_oracle.scaled(scheme, int(acc), sx, sw[o % channels], sy, zy, BOUNDS[of_y])
        for acc, o in zip(sums.ravel(), places, strict=True)
    ]


def convolution(types: tuple[str, ...], target: str, window: Window, name: str = "%r") -> str:
    letters = {"N": "b", "H": "0", "W": "1", "C": "f", "O": "o", "I": "i"}
    dims = [f"[{', '.join(letters[each] for each in layout)}]" for layout in (window.layout, window.weights_layout)]
    top, left, bottom, right = window.pads
    shown = f"stride = {list(window.strides)}, pad = [[{top}, {bottom}], [{left}, {right}]], "
    shown += f"rhs_dilate = {list(window.dilations)}"
    counts = f"{{batch_group_count = 1 : i64, feature_group_count = {window.groups} : i64}}"
    return (
        f"{name} = stablehlo.convolution(%a0, %a1) dim_numbers = {dims[0]}x{dims[1]}->{dims[0]}, "
        f"window = {{{shown}}} {counts} : ({types[0]}, {types[1]}) -> {target}"
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["conv2d", "depthwise"])
def test_litert_convolutions(kind: str) -> None:
    """qgemm_conv.json: what LiteRT's reference kernels gave, bias and activation in the module."""
    for case in load("qgemm_conv")[f"litert_{kind}_nhwc"]:
        depthwise = kind == "depthwise"
        shape = case["w_shape_1HWM"] if depthwise else case["w_shape_OHWI"]
        weights = WeightsLayout.IHWO if depthwise else WeightsLayout.OHWI
        dilations, strides = tuple(case.get("dilation_hw", (1, 1))), tuple(case["stride_hw"])
        pads = (0, 0, 0, 0)
        if case["padding"] == "SAME":
            ends = [
                same_pads(case["x_shape"][axis + 1], shape[axis + 1], strides[axis], dilations[axis], lower=False)
                for axis in range(2)
            ]
            pads = (ends[0][0], ends[1][0], ends[0][1], ends[1][1])
        groups = case["x_shape"][3] if depthwise else case["group"]
        window = Window(
            weights_layout=weights, strides=strides, dilations=dilations, pads=pads, padding=Padding.EXPLICIT,
            groups=groups,
        )  # fmt: skip
        sx, sw = real(case["in_scale"]), [real(each) for each in case["w_scale"]]
        sy, zy = real(case["out_scale"]), case["out_zp"]
        axis = weights.index("O")
        none = [0] * len(sw)
        types = (
            tensor_type(case["x_shape"], quantized("i8", [sx], [case["in_zp"]])),
            tensor_type(shape, quantized("i8", sw, none, axis)),
            tensor_type([len(case["bias"])], quantized("i32", [sx * each for each in sw], none, 0)),
        )
        bounds = activation(case.get("activation", "none"), sy, zy)
        wide = tensor_type(case["y_shape"], quantized("i32", [sx * each for each in sw], none, 3))
        target = tensor_type(case["y_shape"], quantized("i8", [sy], [zy], bounds=bounds))
        lines = [
            convolution(types, wide, window, "%s"),
            f"%b = stablehlo.broadcast_in_dim %a2, dims = [3] : ({types[2]}) -> {wide}",
            f"%t = stablehlo.add %s, %b : {wide}",
            f"%r = stablehlo.uniform_quantize %t : ({wide}) -> {target}",
        ]
        arrays: list[Array] = [
            np.array(case["x"], np.int8),
            np.array(case["w"], np.int8),
            np.array(case["bias"], np.int32),
        ]
        found = run(integer_module(function(types, lines, target), "profile=litert"), arrays)
        assert found.ravel().tolist() == case["ref"]


@settings(max_examples=examples(150))
@given(data=st.data())
def test_add(data: st.DataObject) -> None:
    """Every profile whose ADD has fixed point; all pairs at the ends, and random ones."""
    draw = data.draw
    profile = draw(st.sampled_from(("litert", "litert_single_rounding", "litert_xnnpack", "tosa", "tosa_double_round")))
    storage = draw(st.sampled_from(("i8", "u8", "i4")))
    low, high = BOUNDS[storage]
    scales = draw(st.tuples(*[st.floats(2.0**-6, 4.0, width=32) | st.sampled_from([0.5, 1.0, 2.0])] * 3))
    zeros = draw(st.tuples(*[st.integers(low, high)] * 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    a, b = (np.concatenate([[low, low, high, high], rng.integers(low, high, 60, endpoint=True)]) for _ in range(2))
    b[1], b[3] = high, low
    types = [tensor_type([64], quantized(storage, [s], [z])) for s, z in zip(scales, zeros, strict=True)]
    line = f"%r = stablehlo.add %a0, %a1 : ({types[0]}, {types[1]}) -> {types[2]}"
    text = function(types[:2], [line], types[2])
    try:
        plan = plan_add(tensor(types[0]), tensor(types[1]), parse_type(types[2]), profile)
    except ParameterError:
        with pytest.raises(LoweringError):
            integer_module(text, f"profile={profile}")
        return
    found = run(integer_module(text, f"profile={profile}"), [signless(a, storage), signless(b, storage)])
    expected = np.empty(64, DTYPES[storage])
    plan.run(a.astype(DTYPES[storage]), b.astype(DTYPES[storage]), expected)
    assert as_number(found, storage) == expected.tolist()
    exact = [
        addition_oracle.added(profile, pair, zeros[:2], scales, zeros[2], (low, high))
        for pair in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert as_number(found, storage) == exact


def test_an_add_by_a_scheme_is_that_of_three_multipliers() -> None:
    types = [tensor_type([256], quantized("i8", [s], [z])) for s, z in ((0.3, 4), (0.7, -9), (1.1, 2))]
    line = f"%r = stablehlo.add %a0, %a1 : ({types[0]}, {types[1]}) -> {types[2]}"
    a = np.arange(-128, 128).astype(np.int8)
    b = np.roll(a, 77)
    for scheme in ("gemmlowp", "cmsis_nn", "arm_vector", "xnnpack_rndna"):
        found = run(integer_module(function(types[:2], [line], types[2]), f"scheme={scheme}"), [a, b])
        expected = np.empty(256, np.int8)
        plan_add(tensor(types[0]), tensor(types[1]), parse_type(types[2]), scheme=scheme).run(a, b, expected)
        assert found.tolist() == expected.tolist()


def test_a_fully_connected_layer_of_litert_has_none() -> None:
    types = [tensor_type(shape, quantized("i8", [0.5], [0])) for shape in ((2, 3), (3, 2), (2, 2))]
    line = f"%r = stablehlo.dot %a0, %a1 : ({types[0]}, {types[1]}) -> {types[2]}"
    text = function(types[:2], [line], types[2])
    with pytest.raises(LoweringError, match=r"computes this by scheme litert_float; .*arm_vector.*line 2, column 3"):
        integer_module(text)
    integer_module(text, "scheme=arm_vector")


def test_the_factor_of_a_biased_sum_is_that_of_the_product() -> None:
    """f32 rounds the scale of the sums; the factor is formed from both operands' scales, which it does not."""
    a_scale, y_scale = 0.1, 0.0123
    b_scales = [0.3 + index / 7 for index in range(64)]
    types = [
        tensor_type([1, 1], quantized("i8", [a_scale], [0])),
        tensor_type([1, 64], quantized("i8", b_scales, [0] * 64, 1)),
    ]
    sums = [float(np.float32(a_scale)) * float(np.float32(each)) for each in b_scales]
    sums = [float(np.float32(each)) for each in sums]
    wide = tensor_type([1, 64], quantized("i32", sums, [0] * 64, 1))
    target = tensor_type([1, 64], quantized("i32", [y_scale], [0]))
    lines = [
        f"%s = stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [0] : ({types[0]}, {types[1]}) -> {wide}",
        f"%t = stablehlo.add %s, %a2 : {wide}",
        f"%r = stablehlo.uniform_quantize %t : ({wide}) -> {target}",
    ]
    bias = np.arange(64, dtype=np.int32).reshape(1, 64) * 1_234_567 + 100_000_000
    a, b = np.full((1, 1), 3, np.int8), np.arange(64, dtype=np.int8).reshape(1, 64)
    found = run(integer_module(function([*types, wide], lines, target), "scheme=litert"), [a, b, bias])
    acc = (a.astype(np.int64) @ b + bias).ravel().tolist()
    bounds = (-(2**31), 2**31 - 1)
    assert found.ravel().tolist() == [
        product_oracle.scaled("litert", each, a_scale, b_scale, y_scale, 0, bounds)
        for each, b_scale in zip(acc, b_scales, strict=True)
    ]
