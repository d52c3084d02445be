"""The listings of upstream's pages over HTTP: what they become and what both sides compute.

See docs/upstream_examples.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import numpy as np
import pytest

from requant.lowering.module import read_module
from tests.core.lowering.modules import unnamed
from tests.support import page_listings as page

CHLO = "chlo-legalize-to-stablehlo"


def lower(client: httpx.Client, module: str, *passes: str) -> str:
    reply = client.post("/v1/lower", json={"module": module, "passes": passes})
    assert reply.status_code == 200, reply.text
    found: str = reply.json()["module"]
    return found


def tensor(type_: str, values: Sequence[Any]) -> dict[str, Any]:
    return {"type": type_, "values": list(values)}


def evaluate(client: httpx.Client, module: str, *inputs: dict[str, Any]) -> list[dict[str, Any]]:
    reply = client.post("/v1/evaluate", json={"module": module, "inputs": inputs})
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = reply.json()["outputs"]
    return found


def values(client: httpx.Client, module: str, *inputs: dict[str, Any]) -> list[Any]:
    (output,) = evaluate(client, module, *inputs)
    found: list[Any] = output["values"]
    return found


def plain(text: str) -> str:
    """A module without the names of its values."""
    return unnamed(read_module(text))


@pytest.mark.parametrize(
    ("before", "name", "after"),
    [
        (page.CHAIN, page.FUSE, page.FUSED.replace("<u8", "<ui8")),
        (page.ADD, page.DECOMPOSE, page.ADD_AS_QDQ),
        (page.ADD, page.MATH, page.ADD_AS_MATH),
    ],
)
def test_the_listings_of_stablehlo(client: httpx.Client, before: str, name: str, after: str) -> None:
    assert plain(lower(client, before, name)) == plain(after)


def test_the_two_types_of_stablehlo(client: httpx.Client) -> None:
    """The page prints a plus where its specification, and everybody, subtracts."""
    for type_, shape, stored, units, scales in (
        (page.PER_TENSOR, "3", [50, 60, 40], [0, 10, -10], [0.01] * 3),
        (page.PER_AXIS, "4x3x2x1", [21, 22, 11, 12, 31, 32] * 4, [1, 2] * 12, [0.2, 0.2, 0.1, 0.1, 0.3, 0.3] * 4),
    ):
        assert client.post("/v1/types/parse", json={"text": type_}).status_code == 200
        given = tensor(f"tensor<{shape}x{type_}>", stored)
        reply = client.post("/v1/dequantize", json={"input": given}).json()["output"]
        real = np.array(units, np.float32) * np.array(scales, np.float32)
        assert np.array(reply["values"], np.float32).tolist() == real.tolist()


def test_what_the_fused_operation_computes(client: httpx.Client) -> None:
    stored = [*range(256)]
    given = tensor("tensor<16x16x!quant.uniform<ui8:f32, 34.0:16>>", stored)
    expected = [min(abs(each - 16) + 16, 255) for each in stored]
    for module in (page.CHAIN, lower(client, page.CHAIN, page.FUSE)):
        assert values(client, module, given) == expected
    # The page's own output has another type, and is a module as well.
    given["type"] = "tensor<16x16x!quant.uniform<u8:f32, 3.400000e+01:16>>"
    for module in (page.FUSED, page.FUSED_BESIDE_THE_CHAIN):
        assert values(client, module, given) == expected


def test_what_the_sum_and_its_lowerings_compute(client: httpx.Client) -> None:
    """Pairs from all over the stored numbers. The lowering rounds each side, the specification once."""
    both = [(left, right) for left in range(-128, 128, 5) for right in range(-128, 128, 4)]
    left, right = ([pair[side] for pair in both] for side in (0, 1))
    module = page.ADD.replace("tensor<!", f"tensor<{len(both)}x!")
    ends = ("1.0:0", "2.0:1")
    inputs = [
        tensor(f"tensor<{len(both)}x!quant.uniform<i8:f32, {end}>>", side)
        for end, side in zip(ends, (left, right), strict=True)
    ]
    spec = values(client, module, *inputs)
    exact = [round((a + 2 * (b - 1)) / 3 + 2) for a, b in both]
    assert spec == [min(max(each, -128), 127) for each in exact]
    assert values(client, lower(client, module, page.DECOMPOSE), *inputs) == spec
    raw = [tensor(f"tensor<{len(both)}xi8>", side) for side in (left, right)]
    math = [values(client, lower(client, module, page.MATH, *more), *raw) for more in ((), (CHLO,))]
    assert math[0] == math[1]
    assert {ours - theirs for ours, theirs in zip(math[0], spec, strict=True)} == {-1, 0, 1}
    # What upstream's pass changes, as /v1/compare says it.
    sides = [tensor(f"tensor<{len(both)}xi8>", each) for each in (spec, math[0])]
    found = client.post("/v1/compare", json={"a": sides[0], "b": sides[1]}).json()
    assert found["mismatches"] == sum(a != b for a, b in zip(spec, math[0], strict=True)) > 0


def test_the_listing_of_one_sum(client: httpx.Client) -> None:
    """As printed: scalars, 7 + 2 (5 - 1) = 15, and 15 / 3 + 2 = 7."""
    inputs = [tensor(f"tensor<!quant.uniform<i8:f32, {end}>>", [each]) for end, each in (("1.0", 7), ("2.0:1", 5))]
    for module in (page.ADD, page.ADD_AS_QDQ):
        assert values(client, module, *inputs) == [7]
    assert values(client, page.ADD_AS_MATH, tensor("tensor<i8>", [7]), tensor("tensor<i8>", [5])) == [7]


def test_the_rescales(client: httpx.Client) -> None:
    lowered = lower(client, page.ADD_TO_RESCALE, page.RESCALE)
    places = [lowered.index(f"dense<{each}>") for each in (1431655765, 13, 11, 50)]
    assert places == sorted(places)
    assert lowered.count("dense<1073741824>") == 2
    assert lowered.count("rounding_mode<SINGLE_ROUND>") == lowered.count("tosa.rescale ") == 3
    # 0.25 + 0.75 is 1.05 in steps of 0.15: 9 and 9 give 6.
    inputs = [
        tensor(f"tensor<2x2x!quant.uniform<i8:f32, {scale}:-1>>", [9, 0, -128, 127]) for scale in ("0.025", "0.075")
    ]
    expected = values(client, lowered, *inputs)
    assert expected[0] == 6
    back = lower(client, page.ADD_TO_RESCALE, page.RESCALE, "tosa-rescale-legalize-to-stablehlo")
    assert "tosa" not in back
    assert values(client, back, *inputs) == expected == values(client, page.ADD_TO_RESCALE, *inputs)


def test_the_stale_listing_is_refused_with_its_place(client: httpx.Client) -> None:
    reply = client.post("/v1/lower", json={"module": page.STALE_RESCALES, "passes": []})
    assert (reply.status_code, reply.json()["code"]) == (422, "module_invalid")
    assert reply.json()["line"] == 4


@pytest.mark.parametrize(
    ("signature", "shape", "given", "expected"),
    [
        (page.QCASTS[0], "", [-7.9], [-3]),
        (page.QCASTS[1], "4x", [-3.0, 5.0, 7.9, 254.0], [-1, 2, 3, 127]),
        (page.QCASTS[2], "2x2x1x", [4.0, 9.0, -4.0, -9.5], [2, 3, -2, -3]),
    ],
)
def test_the_examples_of_qcast(
    client: httpx.Client, signature: str, shape: str, given: list[float], expected: list[int]
) -> None:
    module = page.qcast_module(signature)
    pipelines = ((), ("lower-quant-ops",), ("lower-quant-ops", "strip-func-quant-types"))
    lowered = [lower(client, module, *passes) for passes in pipelines]
    assert "quant.qcast" not in lowered[1]
    assert "quant.uniform" not in lowered[2].partition("{")[2].partition("{")[0]
    for each in lowered:
        assert values(client, each, tensor(f"tensor<{shape}f32>", given)) == expected


# The convolution of the article: NHWC by OHWI weights, a bias in i32, zero points on both sides.
X, W = (1, 4, 4, 2), (3, 2, 2, 2)
X_TYPE, W_TYPE = "!quant.uniform<i8:f32, 0.05:-3>", "!quant.uniform<i8:f32:0, {0.02:5, 0.01:-7, 0.03}>"
Y_TYPE = "!quant.uniform<i8:f32, 0.11:4>"
TAPS = "[b, 0, 1, f]x[o, 0, 1, i]->[b, 0, 1, f]"
GROUPS = "{batch_group_count = 1 : i64, feature_group_count = 1 : i64}"


def conv(lhs: str, rhs: str, left: str, right: str, result: str) -> str:
    return (
        f"stablehlo.convolution({lhs}, {rhs}) dim_numbers = {TAPS}, window = {{stride = [1, 1]}} {GROUPS} : "
        f"({left}, {right}) -> {result}"
    )


def spread(value: str, element: str) -> str:
    return f"stablehlo.broadcast_in_dim {value}, dims = [3] : (tensor<3x{element}>) -> tensor<1x3x3x3x{element}>"


def stages_module(multipliers: Sequence[tuple[int, int]], bias: Sequence[int]) -> str:
    """The article's steps as integer operations, with its rounding: (acc * m + (1 << (n - 1))) >> n."""
    sums, wide = "tensor<1x3x3x3xi32>", "tensor<1x3x3x3xi64>"
    m, half, n = (
        [m for m, _ in multipliers],
        [1 << (30 - shift) for _, shift in multipliers],
        [31 - s for _, s in multipliers],
    )
    kept = ("acc", "by_lhs", "by_rhs", "points", "corrected", "biased", "scaled", "shifted", "out")
    types = [*[sums] * 8, "tensor<1x3x3x3xi8>"]
    return f"""func.func @main(%x: tensor<1x4x4x2xi8>, %w: tensor<3x2x2x2xi8>) -> ({", ".join(types)}) {{
  %xi = stablehlo.convert %x : (tensor<1x4x4x2xi8>) -> tensor<1x4x4x2xi32>
  %wi = stablehlo.convert %w : (tensor<3x2x2x2xi8>) -> tensor<3x2x2x2xi32>
  // 1. The integer convolution of the stored numbers.
  %acc = {conv("%xi", "%wi", "tensor<1x4x4x2xi32>", "tensor<3x2x2x2xi32>", sums)}
  // 2. What the zero points take part in: -zx sum w, -zw sum x, K zx zw.
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %w_sum = stablehlo.reduce(%wi init: %zero) applies stablehlo.add across dimensions = [1, 2, 3] :
    (tensor<3x2x2x2xi32>, tensor<i32>) -> tensor<3xi32>
  %minus_zx = stablehlo.constant dense<3> : tensor<3xi32>
  %a = stablehlo.multiply %w_sum, %minus_zx : tensor<3xi32>
  %by_lhs = {spread("%a", "i32")}
  %ones = stablehlo.constant dense<1> : tensor<3x2x2x2xi32>
  %x_sum = {conv("%xi", "%ones", "tensor<1x4x4x2xi32>", "tensor<3x2x2x2xi32>", sums)}
  %minus_zw = stablehlo.constant dense<[-5, 7, 0]> : tensor<3xi32>
  %b = {spread("%minus_zw", "i32")}
  %by_rhs = stablehlo.multiply %x_sum, %b : {sums}
  %k_zx_zw = stablehlo.constant dense<[-120, 168, 0]> : tensor<3xi32>
  %points = {spread("%k_zx_zw", "i32")}
  %c = stablehlo.add %acc, %by_lhs : {sums}
  %d = stablehlo.add %c, %by_rhs : {sums}
  %corrected = stablehlo.add %d, %points : {sums}
  // 3. The bias.
  %bias = stablehlo.constant dense<{list(bias)}> : tensor<3xi32>
  %e = {spread("%bias", "i32")}
  %biased = stablehlo.add %corrected, %e : {sums}
  // 4. Multiplier, half a unit, shift.
  %f = stablehlo.convert %biased : ({sums}) -> {wide}
  %m = stablehlo.constant dense<{m}> : tensor<3xi64>
  %g = {spread("%m", "i64")}
  %h = stablehlo.multiply %f, %g : {wide}
  %half = stablehlo.constant dense<{half}> : tensor<3xi64>
  %i = {spread("%half", "i64")}
  %j = stablehlo.add %h, %i : {wide}
  %n = stablehlo.constant dense<{n}> : tensor<3xi64>
  %k = {spread("%n", "i64")}
  %l = stablehlo.shift_right_arithmetic %j, %k : {wide}
  %scaled = stablehlo.convert %l : ({wide}) -> {sums}
  // 5. The output's zero point. 6. Its bounds, and its type.
  %zy = stablehlo.constant dense<4> : {sums}
  %shifted = stablehlo.add %scaled, %zy : {sums}
  %low = stablehlo.constant dense<-128> : tensor<i32>
  %high = stablehlo.constant dense<127> : tensor<i32>
  %o = stablehlo.clamp %low, %shifted, %high : (tensor<i32>, {sums}, tensor<i32>) -> {sums}
  %out = stablehlo.convert %o : ({sums}) -> tensor<1x3x3x3xi8>
  return {", ".join(f"%{name}" for name in kept)} : {", ".join(types)}
}}"""


def test_the_convolution_of_the_article_in_all_its_stages(client: httpx.Client) -> None:
    """The stages of /v1/conv2d, those of the article's operations evaluated, and exact integers."""
    x = [(index * 37 + 11) % 256 - 128 for index in range(32)]
    w = [(index * 53 + 29) % 256 - 128 for index in range(24)]
    bias = [1000, -2000, 300]
    request = {
        "input": tensor(f"tensor<1x4x4x2x{X_TYPE}>", x),
        "weights": tensor(f"tensor<3x2x2x2x{W_TYPE}>", w),
        "bias": tensor("tensor<3xi32>", bias),
        "output_type": Y_TYPE,
        "profile": "litert_single_rounding",
        "trace": True,
    }
    reply = client.post("/v1/conv2d", json=request)
    assert reply.status_code == 200, reply.text
    trace = reply.json()["trace"]
    multipliers = [(each["multiplier"], each["shift"]) for each in trace["multipliers"]]
    # M = sx sw / sy as m 2^-31 2^shift, to 31 bits.
    for (m, shift), scale in zip(multipliers, (0.02, 0.01, 0.03), strict=True):
        assert abs(m * 2.0 ** (shift - 31) - 0.05 * scale / 0.11) < 1e-9
    raw = (tensor("tensor<1x4x4x2xi8>", x), tensor("tensor<3x2x2x2xi8>", w))
    evaluated = [each["values"] for each in evaluate(client, stages_module(multipliers, bias), *raw)]
    stages = exact_stages(np.array(x).reshape(X), np.array(w).reshape(W), bias, multipliers)
    assert evaluated == stages
    names = (
        "accumulator", "lhs_zero_point_correction", "rhs_zero_point_correction", "zero_points_correction", "corrected",
        "biased", "scaled", "after_zero_point", "after_clamp",
    )  # fmt: skip
    for name, stage in zip(names, stages, strict=True):
        found = np.broadcast_to(np.array(trace[name]["values"]).reshape(shape_of(trace[name]["type"])), (1, 3, 3, 3))
        assert found.reshape(-1).tolist() == stage, name
    assert reply.json()["output"]["values"] == stages[-1]


def shape_of(type_: str) -> list[int]:
    return [int(size) for size in type_.removeprefix("tensor<").split("x") if size.isdecimal()]


def exact_stages(x: Any, w: Any, bias: Sequence[int], multipliers: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Every stage in Python's integers, output by output."""
    stages: list[list[int]] = [[] for _ in range(9)]
    zx, zy = -3, 4
    for row, column, channel in np.ndindex(3, 3, 3):
        pairs = [
            (int(a), int(b))
            for a, b in zip(x[0, row : row + 2, column : column + 2].reshape(-1), w[channel].reshape(-1), strict=True)
        ]
        zw, (m, shift) = (5, -7, 0)[channel], multipliers[channel]
        acc = sum(a * b for a, b in pairs)
        parts = [-zx * sum(b for _, b in pairs), -zw * sum(a for a, _ in pairs), len(pairs) * zx * zw]
        corrected = acc + sum(parts)
        assert corrected == sum((a - zx) * (b - zw) for a, b in pairs)
        biased = corrected + bias[channel]
        n = 31 - shift
        scaled = (biased * m + (1 << (n - 1))) >> n
        for stage, value in zip(
            stages,
            [acc, *parts, corrected, biased, scaled, scaled + zy, min(max(scaled + zy, -128), 127)],
            strict=True,
        ):
            stage.append(value)
    return stages
