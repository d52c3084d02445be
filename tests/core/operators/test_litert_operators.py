"""LiteRT's quantized operators beside exact integers and fractions, for each of its kernels.

Scales make many results ties, or lie one ulp beside those that do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.description import TensorValue
from requant.errors import PreconditionError, RequantError, TypeFitError, UnsupportedError
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.operators.element_names import container
from requant.operators.registry import OPERATORS, operator_named
from tests.oracles import litert_operators as oracle
from tests.oracles.quantization import litert_multiplier, multiply_double
from tests.support.cases import EXHAUSTIVE
from tests.support.operator_calls import run, tensor

Array = NDArray[Any]
Parameters = tuple[float, int]
BOUNDS = {"i8": (-128, 127), "u8": (0, 255), "i16": (-(2**15), 2**15 - 1)}
BYTES = ("i8", "u8")
KERNELS = ("reference", "optimized", "xnnpack")
ROUNDS = 30 if EXHAUSTIVE else 4


def draw(rng: np.random.Generator, name: str, *shape: int) -> Array:
    low, high = BOUNDS[name]
    ends = rng.random(shape)
    found = np.where(ends < 0.05, low, np.where(ends > 0.95, high, rng.integers(low, high + 1, shape)))
    return np.asarray(found)


def of(rng: np.random.Generator, name: str, value: float) -> Parameters:
    """The scale, or one ulp beside it, and a zero point."""
    toward = np.float32([-np.inf, value, np.inf][rng.integers(3)])
    scale = float(np.nextafter(np.float32(value), toward))
    return scale, 0 if name == "i16" else int(draw(rng, name))


def element(name: str, parameters: Parameters) -> str:
    return f"!quant.uniform<{name}:f32, {parameters[0]!r}:{parameters[1]}>"


def ours(
    operator: str,
    inputs: dict[str, TensorValue],
    kernel: str,
    output: tuple[str, Parameters] | None = None,
    **attributes: Any,
) -> Array:
    if output is not None:
        attributes["output_type"] = parse_type(element(*output))
    return run(f"litert.{operator}", inputs, {**attributes, "kernel": kernel})["output"]


def cases(names: Sequence[str] = tuple(BOUNDS)) -> Iterator[tuple[np.random.Generator, str, str]]:
    rng = np.random.default_rng(23)
    for _ in range(ROUNDS):
        yield from ((rng, name, kernel) for name in names for kernel in KERNELS)


def any_scale(rng: np.random.Generator) -> float:
    return float(np.exp(rng.uniform(-7, 1)))


def pair(operator: str, rng: np.random.Generator, name: str) -> tuple[Array, Array, list[Parameters]]:
    first, second = of(rng, name, any_scale(rng)), of(rng, name, any_scale(rng))
    y = max(first[0], second[0]) * rng.choice([1.0, 0.5, 2.0, 2.0**-8, 2.0**9])
    if operator == "MUL":
        # Whole and half numbers, and what XNNPACK does not take.
        y = first[0] * second[0] / rng.choice([1.0, 0.5, 2.0**-7, 2.0**-12, 2.0**-17, 2.0**8])
    count = 400 if name == "i16" else 41
    return draw(rng, name, count), draw(rng, name, count), [first, second, of(rng, name, y)]


def test_multiply() -> None:
    for rng, name, kernel in cases():
        a, b, parameters = pair("MUL", rng, name)
        inputs = {"input1": tensor(element(name, parameters[0]), a), "input2": tensor(element(name, parameters[1]), b)}
        found = ours("MUL", inputs, kernel, (name, parameters[2]))
        whole = {"i8": 32, "u8": 40, "i16": 0}[name]
        expected = [
            oracle.multiply(x, y, parameters, BOUNDS[name], kernel, group=index < whole)
            for index, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True))
        ]
        assert found.tolist() == expected, (name, kernel, parameters)


def test_subtract() -> None:
    refused = 0
    for rng, name, kernel in cases():
        a, b, parameters = pair("SUB", rng, name)
        inputs = {"input1": tensor(element(name, parameters[0]), a), "input2": tensor(element(name, parameters[1]), b)}
        attributes = {"output_type": parse_type(element(name, parameters[2])), "kernel": kernel, "trace": True}
        try:
            found = run("litert.SUB", inputs, attributes)
        except RequantError:
            # The last factor is not below 1.
            refused += 1
            assert (
                2 * max(parameters[0][0], parameters[1][0]) >= 2.0 ** (15 if name == "i16" else 20) * parameters[2][0]
            )
            continue
        pairs = zip(a.tolist(), b.tolist(), strict=True)
        expected = [oracle.subtract(*each, parameters, BOUNDS[name], kernel) for each in pairs]
        stages = zip(found["difference"].tolist(), found["output"].tolist(), strict=True)
        assert [*stages] == expected, parameters
    assert refused < ROUNDS


def test_prelu() -> None:
    for rng, name, kernel in cases():
        x, alpha, parameters = pair("PRELU", rng, name)
        inputs = {
            "input": tensor(element(name, parameters[0]), x), "alpha": tensor(element(name, parameters[1]), alpha)
        }  # fmt: skip
        found = ours("PRELU", inputs, kernel, (name, parameters[2]))
        # Of i16, bytes from the beginning.
        read = alpha.astype(np.int16).view(np.int8)[: alpha.size] if name == "i16" else alpha
        pairs = zip(x.tolist(), read.tolist(), strict=True)
        assert found.tolist() == [oracle.prelu(*each, parameters, BOUNDS[name]) for each in pairs], (name, parameters)


def test_activations_clamp_to_rounded_bounds() -> None:
    """6 / 12 and 1 / 12 beside ties: reference kernels round them away, and XNNPACK with the zero point to even."""
    inputs = {name: tensor("!quant.uniform<i8:f32, 1.0>", [100, -100]) for name in ("input1", "input2")}
    inputs["input2"] = tensor("!quant.uniform<i8:f32, 1.0>", [100, 100])
    for zero_point, kernel, expected in ((0, "reference", [1, 0]), (0, "xnnpack", [0, 0]), (1, "xnnpack", [2, 1])):
        found = ours("MUL", inputs, kernel, ("i8", (12.0, zero_point)), fused_activation_function="RELU6")
        assert found.tolist() == expected
    found = ours("MUL", inputs, "reference", ("i8", (0.5, -3)), fused_activation_function="RELU_N1_TO_1")
    assert found.tolist() == [-1, -5]


def window(size: int, taps: int, stride: int, padding: str) -> list[range]:
    """The places of each window, as TensorFlow pads."""
    if padding == "VALID":
        return [range(start, start + taps) for start in range(0, size - taps + 1, stride)]
    places = -(-size // stride)
    before = max((places - 1) * stride + taps - size, 0) // 2
    return [
        range(max(index * stride - before, 0), min(index * stride - before + taps, size)) for index in range(places)
    ]


def test_pools() -> None:
    for rng, name, kernel in cases():
        padding, size, taps, stride = str(rng.choice(["SAME", "VALID"])), (6, 7), (3, 2), (2, 3)
        x = draw(rng, name, 2, *size, 3)
        inputs = {"input": tensor(element(name, (0.5, 0)), x)}
        rows, columns = (window(*each, padding) for each in zip(size, taps, stride, strict=True))
        given: dict[str, Any] = {
            "padding": padding, "filter_height": 3, "filter_width": 2, "stride_h": 2, "stride_w": 3,
        }  # fmt: skip
        for operator, function in (("AVERAGE_POOL_2D", oracle.mean_of_window), ("MAX_POOL_2D", max)):
            found = ours(operator, inputs, kernel, **given)
            assert found.shape == (2, len(rows), len(columns), 3)
            for index in np.ndindex(found.shape):
                seen = x[index[0], rows[index[1]], :, index[3]][:, columns[index[2]]].ravel().tolist()
                assert found[index] == function(seen)


@pytest.mark.parametrize(
    ("name", "low", "high"), [("RELU", 0.0, None), ("RELU6", 0.0, 6.0), ("RELU_N1_TO_1", -1.0, 1.0)]
)
def test_rectified(name: str, low: float, high: float | None) -> None:
    for rng, storage, kernel in cases():
        x = of(rng, storage, rng.choice([any_scale(rng), 4.0, 12.0]))
        y = of(rng, storage, x[0] * rng.choice([1.0, 2.0, 0.5, 1 / 3]))
        codes = draw(rng, storage, 60)
        found = ours(name, {"input": tensor(element(storage, x), codes)}, kernel, (storage, y))
        expected = [oracle.relu(each, (x, y), low, high, BOUNDS[storage]) for each in codes.tolist()]
        assert found.tolist() == expected, (x, y)


def test_leaky_relu() -> None:
    for rng, name, kernel in cases():
        x = of(rng, name, any_scale(rng))
        y = of(rng, name, x[0] * rng.choice([1.0, 2.0, 0.5, 2.0**8, 2.0**-7]))
        alpha = float(np.float32(rng.choice([0.1, 0.5, -0.25, 2.0, 0.001])))
        codes = draw(rng, name, 60)
        found = ours("LEAKY_RELU", {"input": tensor(element(name, x), codes)}, kernel, (name, y), alpha=alpha)
        expected = [oracle.leaky(each, alpha, (x, y), BOUNDS[name], kernel) for each in codes.tolist()]
        assert found.tolist() == expected, (x, y, alpha)


FUNCTIONS: dict[str, tuple[Callable[[Fraction], Fraction], float, dict[str, int]]] = {
    "LOGISTIC": (oracle.logistic, 2.0**-8, {"i8": -128, "u8": 0}),
    "TANH": (oracle.tanh, 2.0**-7, {"i8": 0, "u8": 128}),
}


@pytest.mark.parametrize("operator", FUNCTIONS)
def test_functions(operator: str) -> None:
    function, scale, zero_points = FUNCTIONS[operator]
    for rng, name, kernel in cases(BYTES):
        x, y = of(rng, name, any_scale(rng)), (scale, zero_points[name])
        codes = draw(rng, name, 60)
        found = ours(operator, {"input": tensor(element(name, x), codes)}, kernel, (name, y))
        assert found.tolist() == [oracle.entry(each, function, (x, y), BOUNDS[name], kernel) for each in codes.tolist()]


@pytest.mark.parametrize("operator", FUNCTIONS)
def test_functions_of_16_bits(operator: str) -> None:
    for rng, name, kernel in cases(("i16",)):
        x = (float(np.float32(any_scale(rng) / 200 * 1.3)), 0)
        if abs(math.log2(x[0]) - round(math.log2(x[0]))) < 2e-3:
            continue
        codes = draw(rng, name, 200)
        found = ours(operator, {"input": tensor(element(name, x), codes)}, kernel, (name, (2.0**-15, 0)))
        of_tanh = operator == "TANH"
        assert found.tolist() == [oracle.interpolated(c, x[0], oracle.SIGMOID, of_tanh=of_tanh) for c in codes.tolist()]


def test_ties() -> None:
    """The reference kernels round ties away from zero; XNNPACK to even, or in sums up."""
    one, odd = "!quant.uniform<i8:f32, 1.0>", [1, -1, 3, -3, 5, -5]
    inputs = {"input1": tensor(one, odd), "input2": tensor(one, [2] * 6)}
    assert ours("MUL", inputs, "reference", ("i8", (4.0, 0))).tolist() == [1, -1, 2, -2, 3, -3]
    assert ours("MUL", inputs, "xnnpack", ("i8", (4.0, 0))).tolist() == [0, 0, 2, -2, 2, -2]
    inputs["input2"] = tensor(one, [0] * 6)
    assert ours("SUB", inputs, "reference", ("i8", (2.0, 0))).tolist() == [1, -1, 2, -2, 3, -3]
    assert ours("SUB", inputs, "xnnpack", ("i8", (2.0, 0))).tolist() == [1, 0, 2, -1, 3, -2]
    # 1 / 2 is 2.5 steps of 0.2, and 3.5 with the zero point.
    for kernel, expected in (("reference", 4), ("xnnpack", 4)):
        assert ours("LOGISTIC", {"input": tensor(one, [0])}, kernel, ("i8", (0.2, 1))).tolist() == [expected]
    assert ours("LOGISTIC", {"input": tensor(one, [0])}, "xnnpack", ("i8", (0.2, 0))).tolist() == [2]


def test_a_sum_of_hard_swish_wraps() -> None:
    inputs = {"input": tensor("!quant.uniform<u8:f32, 0.031>", [0, 10, 200, 255])}
    assert ours("HARD_SWISH", inputs, "xnnpack", ("u8", (0.000243, 255))).tolist() == [255, 255, 255, 0]


def test_the_powers_of_softmax() -> None:
    """What a trace shows has more bits than the output."""
    codes = list(range(-30, 30))
    inputs = {"input": tensor("!quant.uniform<i8:f32, 0.25>", codes)}
    attributes = {"output_type": parse_type(element("i8", (2.0**-8, -128))), "trace": True}
    traced = run("litert.SOFTMAX", inputs, attributes)
    m, e = litert_multiplier(0.25 * 2.0**26)
    expected = [oracle.power(multiply_double(each - max(codes), m, e)) for each in codes]
    assert traced["power"].tolist() == expected


def test_a_scale_that_is_a_power_of_two() -> None:
    """2^-12 needs no shift: the input is in units of 1 / 4096 already."""
    inputs = {"input": tensor("!quant.uniform<i16:f32, 0.000244140625>", [0, 4096, -4096, 32767])}
    found = ours("LOGISTIC", inputs, "reference", ("i16", (2.0**-15, 0)))
    assert found.tolist() == [16384, 23956, 8812, 32757]
    with pytest.raises(UnsupportedError, match="power of two"):
        ours("LOGISTIC", inputs, "optimized", ("i16", (2.0**-15, 0)))


def test_hard_swish() -> None:
    for rng, name, kernel in cases(BYTES):
        x = of(rng, name, any_scale(rng))
        y = of(rng, name, x[0] * rng.choice([1.0, 0.5, 2.0, 1 / 60, 1 / 3, 600.0]))
        codes = np.arange(BOUNDS[name][0], BOUNDS[name][1] + 1)
        found = ours("HARD_SWISH", {"input": tensor(element(name, x), codes)}, kernel, (name, y))
        assert found.tolist() == [oracle.hard_swish(each, (x, y), BOUNDS[name]) for each in codes.tolist()], (x, y)


def test_softmax() -> None:
    tables = oracle.softmax_table(math.exp, -10.0, 0.0), oracle.softmax_table(lambda x: 1 / (1 + x), 0.0, 1.0)
    for rng, name, kernel in cases():
        scale = float(np.float32(np.exp(rng.uniform(-9, 1)) / (200 if name == "i16" else 1)))
        codes = draw(rng, name, 3, int(rng.integers(1, 12))) // int(rng.choice([1, 16]))
        beta = float(np.float32(rng.choice([1.0, 0.5, 2.7])))
        y = (2.0**-15, 0) if name == "i16" else (2.0**-8, BOUNDS[name][0])
        inputs = {"input": tensor(element(name, (scale, 0)), codes)}
        attributes = {"output_type": parse_type(element(name, y)), "kernel": kernel, "beta": beta, "trace": True}
        found = run("litert.SOFTMAX", inputs, attributes)
        for index, (row, given) in enumerate(zip(found["output"].tolist(), codes.tolist(), strict=True)):
            if name == "i16":
                assert row == oracle.softmax_of_i16(given, scale, beta, tables)
            elif kernel == "reference":
                expected = oracle.softmax_in_fixed_point(given, scale, beta, BOUNDS[name])
                assert (found["inverse"][index, 0], row) == expected
            else:
                assert row == oracle.softmax_in_f32(given, scale, beta, BOUNDS[name])


def test_softmax_of_u8_adds_a_half_in_f32() -> None:
    """One ulp below a half and a half are 1 in f32."""
    inputs = {"input": tensor("!quant.uniform<u8:f32, 1.712585687637329>", [[255, 255, 255, 252]])}
    assert ours("SOFTMAX", inputs, "optimized", ("u8", (2.0**-8, 0))).tolist() == [[85, 85, 85, 1]]


def test_softmax_of_a_row_that_ends_litert() -> None:
    inputs = {"input": tensor("!quant.uniform<i8:f32, 0.1>", np.zeros((1, 512)))}
    with pytest.raises(PreconditionError, match="512"):
        ours("SOFTMAX", inputs, "reference", ("i8", (2.0**-8, -128)))
    inputs = {"input": tensor("!quant.uniform<i8:f32, 0.1>", np.zeros((1, 511)))}
    assert set(ours("SOFTMAX", inputs, "reference", ("i8", (2.0**-8, -128))).ravel().tolist()) == {-127}


def test_mean_and_sum() -> None:
    for rng, name, kernel in cases():
        codes, x = draw(rng, name, 2, 3, 5, 18), of(rng, name, any_scale(rng))
        for axes, keep in itertools.product(((1, 2), (-1,), (0, 1, 3)), (False, True)):
            y = of(rng, name, x[0] * rng.choice([1.0, 0.5, 15.0, 1 / 3]))
            inputs = {"input": tensor(element(name, x), codes), "axis": tensor("i32", list(axes))}
            kept = [each for each in range(4) if each not in {axis % 4 for axis in axes}]
            rows = np.moveaxis(codes, kept, range(len(kept))).reshape(
                -1, codes.size // math.prod(codes.shape[k] for k in kept)
            )
            found = ours("MEAN", inputs, kernel, (name, y), keep_dims=keep)
            image = keep and axes == (1, 2)
            expected = [
                oracle.mean(
                    row.tolist(), (x, y), BOUNDS[name], kernel, image=image,
                    image_group=name == "i8" and index % 18 < 16,
                )
                for index, row in enumerate(rows)
            ]  # fmt: skip
            assert found.ravel().tolist() == expected, (axes, keep, x, y)
            if kernel == "reference" and name == "i16":
                with pytest.raises(UnsupportedError):
                    ours("SUM", inputs, kernel, (name, y), keep_dims=keep)
                continue
            found = ours("SUM", inputs, kernel, (name, y), keep_dims=keep)
            assert found.ravel().tolist() == [oracle.total(row.tolist(), (x, y), BOUNDS[name], kernel) for row in rows]


def test_concatenation() -> None:
    for rng, name, kernel in cases():
        y = of(rng, name, any_scale(rng))
        sides = [y if name == "i8" else of(rng, name, y[0] * rng.choice([0.5, 1.5, 1 / 3])) for _ in range(2)]
        parts = [draw(rng, name, 3, 5), draw(rng, name, 3, 2)]
        inputs = {
            f"input_{index}": tensor(element(name, side), part)
            for index, (side, part) in enumerate(zip(sides, parts, strict=True))
        }
        found = ours("CONCATENATION", inputs, kernel, (name, y), axis=-1)
        if name == "u8":
            parts = [
                np.array([oracle.joined(each, (side, y), BOUNDS[name]) for each in part.ravel().tolist()]).reshape(
                    part.shape
                )
                for side, part in zip(sides, parts, strict=True)
            ]
        assert np.array_equal(found, np.concatenate(parts, -1))
    with pytest.raises(UnsupportedError):
        ours(
            "CONCATENATION",
            {"input_0": tensor("!quant.uniform<i8:f32, 0.5>", [1])},
            "reference",
            ("i8", (1.0, 0)),
            axis=0,
        )


def test_pad() -> None:
    inputs = {"input": tensor("!quant.uniform<i8:f32, 0.5:7>", [[1, 2]]), "paddings": tensor("i32", [[1, 0], [0, 2]])}
    assert ours("PAD", inputs, "xnnpack").tolist() == [[7, 7, 7, 7], [1, 2, 7, 7]]


def check_resized(name: str, x: Array, after: list[int], kernel: str, *, align: bool, half: bool) -> None:
    inputs = {"input": tensor(element(name, (0.5, 0)), x[None, :, :, None]), "size": tensor("i32", after)}
    flags: dict[str, Any] = {"align_corners": align, "half_pixel_centers": half}
    nearest = ours("RESIZE_NEAREST_NEIGHBOR", inputs, kernel, **flags)[0, :, :, 0]
    bilinear = ours("RESIZE_BILINEAR", inputs, kernel, **flags)[0, :, :, 0]
    for index in np.ndindex(*after):
        axes = list(zip(index, x.shape, after, strict=True))
        i, j = (oracle.nearest_index(*each, align=align, half=half) for each in axes)
        assert nearest[index] == x[i, j]
        if kernel == "xnnpack" and name != "i16":
            place: Any = oracle.place_of_11_bits
        else:
            place = oracle.place_of_f32 if name == "u8" else oracle.place_of_10_bits
        (top, bottom, down), (left, right, along) = (place(*each, align=align, half=half) for each in axes)
        corners = [int(x[r, c]) for r in (top, bottom) for c in (left, right)]
        if kernel == "xnnpack" and name != "i16":
            expected = oracle.bilinear_of_11_bits(corners, down, along)
        elif name == "u8":
            expected = oracle.bilinear_of_f32(corners, down, along, kernel)
        else:
            expected = oracle.bilinear_of_10_bits(corners, down, along)
        assert bilinear[index] == expected, (x.shape, after, flags, index)


def test_resize() -> None:
    for rng, name, kernel in cases():
        before, after = rng.integers(1, 8, 2).tolist(), rng.integers(1, 12, 2).tolist()
        align, half = [(False, False), (True, False), (False, True)][rng.integers(3)]
        check_resized(name, draw(rng, name, *before), after, kernel, align=align, half=half)


@pytest.mark.parametrize("kernel", ["reference", "optimized"])
@pytest.mark.parametrize(
    ("image", "after", "half"),
    [
        ([[251, 97, 175], [243, 166, 215], [176, 180, 99]], [29, 24], False),
        ([[65, 82, 184], [152, 129, 86], [194, 100, 84], [227, 67, 58]], [21, 18], True),
    ],
)
def test_the_order_of_a_sum_of_corners(image: list[list[int]], after: list[int], half: bool, kernel: str) -> None:
    """Images of which each order of products and sums in f32 makes another."""
    check_resized("u8", np.array(image), after, kernel, align=False, half=half)


def test_batch_matmul() -> None:
    for rng, name, kernel in cases(("i8", "i16")):
        a, b = draw(rng, name, 2, 3, 5), draw(rng, name, 2, 5, 4)
        of_a, of_b = of(rng, name, any_scale(rng)), of(rng, name, any_scale(rng))
        if rng.random() < 0.5:
            of_b = (of_b[0], 0)
        y = of(rng, name, of_a[0] * of_b[0] * rng.choice([128.0, 256.0, 100.0]) * (200 if name == "i16" else 1))
        inputs = {"lhs": tensor(element(name, of_a), a), "rhs": tensor(element(name, of_b), b.swapaxes(1, 2))}
        found = ours("BATCH_MATMUL", inputs, kernel, (name, y), adj_y=True)
        product = oracle.rounded(Fraction(of_a[0]) * Fraction(of_b[0]))
        for (batch, m, n), each in np.ndenumerate(found):
            pairs = zip(a[batch, m].tolist(), b[batch, :, n].tolist(), strict=True)
            total = sum((left - of_a[1]) * (right - of_b[1]) for left, right in pairs)
            if kernel == "xnnpack" and name == "i8" and of_b[1] == 0:
                expected = oracle.in_f32(total, oracle.quotient(product, y[0]), y[1], BOUNDS[name])
            else:
                scaled = (oracle.fixed_64 if name == "i16" else oracle.fixed)(total, product / Fraction(y[0]))
                expected = oracle.clamped(scaled + y[1], BOUNDS[name])
            assert each == expected, (kernel, of_a, of_b, y)


def test_transpose_conv() -> None:
    for rng, name, kernel in cases():
        padding = str(rng.choice(["SAME", "VALID"]))
        taps, stride, size, inner, outer = (3, 2), (2, 3), (3, 2), 2, 9
        shape = (6, 6) if padding == "SAME" else (7, 6)
        x, w = draw(rng, name, 1, *size, inner), draw(rng, "u8" if name == "u8" else "i8", outer, *taps, inner)
        of_x = of(rng, name, any_scale(rng))
        scales = [float(np.float32(any_scale(rng))) for _ in range(1 if name == "u8" else outer)]
        zero = int(draw(rng, "u8")) if name == "u8" else 0
        y = of(rng, name, of_x[0] * scales[0] * rng.choice([128.0, 256.0, 100.0]))
        typed = (
            element("u8", (scales[0], zero))
            if name == "u8"
            else (f"!quant.uniform<i8:f32:0, {{{', '.join(map(repr, scales))}}}>")
        )
        inputs = {
            "output_shape": tensor("i32", [1, *shape, outer]), "weights": tensor(typed, w),
            "input": tensor(element(name, of_x), x),
        }  # fmt: skip
        bias = rng.integers(-3000, 3000, outer)
        if name != "i16":
            inputs["bias"] = tensor("i32", bias)
        found = ours("TRANSPOSE_CONV", inputs, kernel, (name, y), padding=padding, stride_h=2, stride_w=3)[0]
        sums = np.zeros((*shape, outer), np.int64) + (bias if name != "i16" else 0)
        top = max((size[0] - 1) * stride[0] + taps[0] - shape[0], 0) // 2 if padding == "SAME" else 0
        for i, j, row, column in np.ndindex(*size, *taps):
            at = i * stride[0] + row - top, j * stride[1] + column
            if 0 <= at[0] < shape[0] and at[1] < shape[1]:
                sums[at] += (x[0, i, j] - of_x[1]) @ (w[:, row, column] - zero).T
        in_xnnpack = kernel == "xnnpack" and name != "i16" and padding == "VALID"
        for (row, column, channel), each in np.ndenumerate(found):
            total, scale = int(sums[row, column, channel]), Fraction(scales[0 if name == "u8" else channel])
            product = oracle.rounded(Fraction(of_x[0]) * scale)
            exact = (product if name == "u8" else Fraction(of_x[0]) * scale) / Fraction(y[0])
            place = (row * shape[1] + column) * outer + channel
            vector = channel < 8 if name == "i8" else place < found.size // 16 * 16
            if in_xnnpack:
                expected = oracle.in_f32(total, oracle.quotient(product, y[0]), y[1], BOUNDS[name])
            elif name == "i16":
                expected = oracle.clamped(oracle.fixed_64(total, exact), BOUNDS[name])
            else:
                rule = oracle.fixed_up if kernel != "reference" and vector else oracle.fixed
                expected = oracle.clamped(rule(total, exact) + y[1], BOUNDS[name])
            assert each == expected, (name, kernel, padding, of_x, y)


@pytest.mark.parametrize("name", [each for each in OPERATORS if each.startswith("litert.") and OPERATORS[each].stages])
def test_a_trace_is_the_stages_of_the_description(name: str) -> None:
    described = operator_named(name)
    inputs = {}
    for key, each in described.example["inputs"].items():
        type_ = parse_type(each["type"])
        assert isinstance(type_, TensorType)
        dtype = container(type_.element)
        inputs[key] = TensorValue(type_, np.array(each["values"], dtype))
    attributes = dict(described.example.get("attributes", {}))
    if "output_type" in attributes:
        attributes["output_type"] = parse_type(attributes["output_type"])
    for kernel in KERNELS:
        plain = run(name, inputs, {**attributes, "kernel": kernel, "trace": False})
        traced = run(name, inputs, {**attributes, "kernel": kernel, "trace": True})
        assert set(traced) - {"output"} <= {each.name for each in described.stages}
        assert [*traced][-1] == "output"
        assert np.array_equal(traced["output"], plain["output"])


def test_refusals() -> None:
    x = tensor("!quant.uniform<i8:f32, 0.5:3>", [1, 2])
    wrong: Any = (
        ("MUL", {"input1": x, "input2": tensor("!quant.uniform<u8:f32, 0.5:3>", [1, 2])}, TypeFitError),
        ("MUL", {"input1": x, "input2": tensor("!quant.uniform<i8:f32, 0.5:3>", [1, 2, 3])}, TypeFitError),
        ("MUL", {"input1": x, "input2": tensor("!quant.uniform<i8<-127:127>:f32, 0.5>", [1, 2])}, UnsupportedError),
        ("MUL", {"input1": x, "input2": tensor("!quant.uniform<i8:f64, 0.5>", [1, 2])}, UnsupportedError),
    )
    for operator, inputs, error in wrong:
        with pytest.raises(error):
            ours(operator, inputs, "reference", ("i8", (0.5, 3)))
    wide = tensor("!quant.uniform<i16:f32, 0.5:3>", [1, 2])
    with pytest.raises(UnsupportedError, match="zero points"):
        ours("MUL", {"input1": wide, "input2": wide}, "reference", ("i16", (0.5, 0)))


def test_the_optimized_multiplication_wraps_in_whole_groups() -> None:
    """-92267 and a zero point of -77: the last element, behind the group of 16, is that of the reference kernel."""
    a = tensor("!quant.uniform<i8:f32, 1.0>", [-128] * 17)
    b = tensor("!quant.uniform<i8:f32, 1.0>", [127] * 17)
    output = ("i8", (0.17618, -77))
    assert ours("MUL", {"input1": a, "input2": b}, "optimized", output).tolist() == [127] * 16 + [-128]
    assert ours("MUL", {"input1": a, "input2": b}, "reference", output).tolist() == [-128] * 17
    one = tensor("!quant.uniform<i8:f32, 1.0>", [127])
    with pytest.raises(UnsupportedError, match="int16"):
        ours("MUL", {"input1": a, "input2": one}, "optimized", output)
