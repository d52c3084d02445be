"""MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv: what real systems gave, exact sums, and what is refused."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.description import TensorValue
from requant.errors import LimitError, ParameterError, RequantError, TypeFitError, UnsupportedError
from requant.operators.checks import checked_call
from requant.operators.registry import operator_named
from requant.operators.separate_parameters import MAX_FACTORS
from tests.oracles.profiles import FORMATS
from tests.support.operator_calls import output_types, run, tensor
from tests.vector_cases import load
from tests.vector_cases.conversion import floats

Array = NDArray[Any]
VECTORS = load("qgemm_conv")
COLUMNS = {"onnxruntime": "ort", "reference": "ref"}
U, I = "ui8", "i8"  # noqa: E741
DTYPES = {U: np.uint8, I: np.int8}


def real(text: str) -> float:
    return float(floats([text])[0])


def numbers(rng: np.random.Generator, element: str, *shape: int) -> Array:
    limits = np.iinfo(DTYPES[element])
    return rng.integers(limits.min, limits.max + 1, shape)


def element_of(weights: list[int]) -> str:
    return I if min(weights) < 0 else U


def listed(values: Any, count: int) -> Array:
    """Parameters of a vector: one as a scalar."""
    return np.array(values).reshape(()) if len(values) == 1 else np.array(values).reshape(count)


@pytest.mark.parametrize("case", VECTORS["onnx_matmul_integer"])
def test_a_vector_of_matmul_integer(case: Any) -> None:
    types = {"uint8": U, "int8": I}
    inputs = {
        "A": tensor(types[case["a_type"]], np.reshape(case["a"], (case["M"], case["K"]))),
        "B": tensor(types[case["b_type"]], np.reshape(case["b"], (case["K"], case["N"]))),
        "a_zero_point": tensor(types[case["a_type"]], case["a_zp"]),
        "b_zero_point": tensor(types[case["b_type"]], listed(case["b_zp"], case["N"])),
    }
    assert run("onnx.MatMulInteger", inputs, opset=10)["Y"].ravel().tolist() == case["y"]


@pytest.mark.parametrize(
    ("case", "implementation", "opset"),
    list(itertools.product(VECTORS["onnx_qlinear_matmul"], COLUMNS, (10, 21))),
)
def test_a_vector_of_qlinear_matmul(case: Any, implementation: str, opset: int) -> None:
    of_b = {"uint8": U, "int8": I}[case["b_type"]]
    inputs = {
        "a": tensor(U, np.reshape(case["a"], (case["M"], case["K"]))),
        "a_scale": tensor("f32", real(case["a_scale"])),
        "a_zero_point": tensor(U, case["a_zp"]),
        "b": tensor(of_b, np.reshape(case["b"], (case["K"], case["N"]))),
        "b_scale": tensor("f32", listed([real(each) for each in case["b_scale"]], case["N"])),
        "b_zero_point": tensor(of_b, listed(case["b_zp"], case["N"])),
        "y_scale": tensor("f32", real(case["y_scale"])),
        "y_zero_point": tensor(U, case["y_zp"]),
    }
    found = run("onnx.QLinearMatMul", inputs, opset=opset, implementation=implementation)["y"]
    assert found.ravel().tolist() == case[COLUMNS[implementation]]


def window(case: Any) -> dict[str, Any]:
    return {name: case[name] for name in ("strides", "dilations", "pads", "group")}


@pytest.mark.parametrize("case", VECTORS["onnx_conv_integer"])
def test_a_vector_of_conv_integer(case: Any) -> None:
    of_w = element_of(case["w"])
    inputs = {
        "x": tensor(U, np.reshape(case["x"], case["x_shape"])),
        "w": tensor(of_w, np.reshape(case["w"], case["w_shape"])),
        "x_zero_point": tensor(U, case["x_zp"]),
        "w_zero_point": tensor(of_w, case.get("w_zp", 0)),
    }
    found = run("onnx.ConvInteger", inputs, window(case), opset=10)["y"]
    assert found.shape == tuple(case["y_shape"])
    assert found.ravel().tolist() == case["y"]


@pytest.mark.parametrize(("case", "implementation"), list(itertools.product(VECTORS["onnx_qlinear_conv"], COLUMNS)))
def test_a_vector_of_qlinear_conv(case: Any, implementation: str) -> None:
    of_w, channels = element_of(case["w"]), case["w_shape"][0]
    inputs = {
        "x": tensor(U, np.reshape(case["x"], case["x_shape"])),
        "x_scale": tensor("f32", real(case["x_scale"])),
        "x_zero_point": tensor(U, case["x_zp"]),
        "w": tensor(of_w, np.reshape(case["w"], case["w_shape"])),
        "w_scale": tensor("f32", listed([real(each) for each in case["w_scale"]], channels)),
        "w_zero_point": tensor(of_w, listed(case["w_zp"], channels)),
        "y_scale": tensor("f32", real(case["y_scale"])),
        "y_zero_point": tensor(U, case["y_zp"]),
    }
    if case["bias"] is not None:
        inputs["B"] = tensor("i32", case["bias"])
    found = run("onnx.QLinearConv", inputs, window(case), opset=10, implementation=implementation)["y"]
    assert found.shape == tuple(case["y_shape"])
    assert found.ravel().tolist() == case[COLUMNS[implementation]]


@pytest.mark.parametrize(
    ("a", "b", "a_zero", "b_zero", "y"),
    [
        ((4,), (4,), (), (1,), ()),
        ((4,), (4, 5), (1,), (5,), (5,)),
        ((3, 4), (4,), (3,), (), (3,)),
        ((3, 4), (4, 5), (3, 1), (1, 5), (3, 5)),
        ((2, 3, 4), (4,), (2, 3, 1), (), (2, 3)),
        ((2, 3, 4), (4, 5), (2, 3, 1), (5,), (2, 3, 5)),
        ((2, 3, 4), (2, 4, 5), (2, 3, 1), (2, 1, 5), (2, 3, 5)),
        ((2, 1, 3, 4), (5, 4, 2), (2, 1, 3, 1), (5, 1, 2), (2, 5, 3, 2)),
        ((0, 4), (4, 5), (), (5,), (0, 5)),
        ((1, 4), (4, 1), (1,), (1, 1), (1, 1)),
    ],
)
@pytest.mark.parametrize("types", [(U, U), (U, I), (I, U), (I, I)])
def test_products_of_any_rank(
    a: tuple[int, ...],
    b: tuple[int, ...],
    a_zero: tuple[int, ...],
    b_zero: tuple[int, ...],
    y: tuple[int, ...],
    types: Any,
) -> None:
    """Sums by numpy's own rules in int64; the quantized product from them, exactly."""
    rng = np.random.default_rng(7)
    data = [numbers(rng, element, *shape) for element, shape in zip(types, (a, b), strict=True)]
    zeros = [numbers(rng, element, *shape) for element, shape in zip(types, (a_zero, b_zero), strict=True)]
    spread = [zeros[0].reshape(-1, 1) if len(a_zero) == 1 and len(a) == 2 else zeros[0], zeros[1]]
    sums = np.matmul(data[0] - spread[0], data[1] - spread[1])
    inputs = {name: tensor(element, array) for name, element, array in zip("AB", types, data, strict=True)}
    points = {f"{name}_zero_point": tensor(each, z) for name, each, z in zip("ab", types, zeros, strict=True)}
    found = run("onnx.MatMulInteger", {**inputs, **points}, opset=10)["Y"]
    assert found.shape == y == sums.shape
    assert found.tolist() == sums.tolist()

    scales = [rng.uniform(0.01, 0.9, shape).astype(np.float32) for shape in (a_zero, b_zero)]
    given = {
        "a": inputs["A"], "a_scale": tensor("f32", scales[0]), "a_zero_point": points["a_zero_point"],
        "b": inputs["B"], "b_scale": tensor("f32", scales[1]), "b_zero_point": points["b_zero_point"],
        "y_scale": tensor("f32", 97.25), "y_zero_point": tensor(U, 101),
    }  # fmt: skip
    of_rows = scales[0].reshape(-1, 1) if len(a_zero) == 1 and len(a) == 2 else scales[0]
    # The scales as the sums have them: a vector's dimension is not there.
    rows, columns = (of_rows[..., 0] if len(b) == 1 and of_rows.ndim > 1 else of_rows), scales[1]
    expected = quantized(sums, rows, columns, np.float32(97.25), 101, "f32", reference=False)
    assert run("onnx.QLinearMatMul", given, opset=21)["y"].tolist() == expected.tolist()


def quantized(
    sums: Array, left: Array, right: Array, y_scale: Any, zero: int, element: str, *, reference: bool
) -> Array:
    """QLinearMatMul and QLinearConv to ui8: element by element in fractions, rounded where the text rounds."""
    narrow, f32 = FORMATS[element], FORMATS["f32"]
    found = np.zeros(sums.shape, np.int64)
    left, right = (np.broadcast_to(each.reshape(()) if each.size == 1 else each, sums.shape) for each in (left, right))
    for index in np.ndindex(sums.shape):
        product = narrow.round(Fraction(float(left[index])) * Fraction(float(right[index])))
        factor = narrow.round(Fraction(product) / Fraction(float(y_scale)))
        if reference:
            scaled = round(Fraction(float(int(sums[index])) * factor + zero))
        else:
            value = f32.round(Fraction(f32.round(Fraction(int(sums[index])))) * Fraction(factor))
            scaled = round(Fraction(value)) + zero
        found[index] = min(max(scaled, 0), 255)
    return found


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("implementation", list(COLUMNS))
def test_narrow_scales(element: str, implementation: str) -> None:
    """onnxruntime forms the factor in f32; the reference evaluator in the type of the scales."""
    rng = np.random.default_rng(8)
    a, b = numbers(rng, U, 9, 30), numbers(rng, I, 30, 7)
    sums = np.matmul(a - 100, b + 3)
    kept = [FORMATS[element].round(Fraction(each)) for each in (0.0371, 0.213, float(np.abs(sums).max()) * 6e-5)]
    codes = [as_kept(each, element) for each in kept]
    inputs = {
        "a": tensor(U, a), "a_scale": tensor(element, codes[0]), "a_zero_point": tensor(U, 100),
        "b": tensor(I, b), "b_scale": tensor(element, codes[1]), "b_zero_point": tensor(I, -3),
        "y_scale": tensor(element, codes[2]), "y_zero_point": tensor(U, 13),
    }  # fmt: skip
    found = run("onnx.QLinearMatMul", inputs, opset=21, implementation=implementation)["y"]
    reference = implementation == "reference"
    steps = element if reference else "f32"
    expected = quantized(sums, np.array(kept[0]), np.array(kept[1]), kept[2], 13, steps, reference=reference)
    assert found.tolist() == expected.tolist()
    assert len(np.unique(found)) > 20


def as_kept(value: float, element: str) -> Any:
    """A number of f16, or the bits of one of bf16."""
    return np.float16(value) if element == "f16" else np.float32(value).view(np.uint32) >> 16


def convolved(x: Array, w: Array, strides: Any, dilations: Any, pads: Any, group: int) -> Array:
    """Differences to zero points convolved, tap by tap, in any number of dimensions."""
    rank = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    spatial = [
        (size - (kernel - 1) * dilation - 1) // stride + 1
        for size, kernel, dilation, stride in zip(padded.shape[2:], w.shape[2:], dilations, strides, strict=True)
    ]
    found = np.zeros((x.shape[0], w.shape[0], *spatial), np.int64)
    per_group, depth = w.shape[0] // group, w.shape[1]
    for output in range(w.shape[0]):
        channels = slice(output // per_group * depth, output // per_group * depth + depth)
        for place in np.ndindex(*spatial):
            taps = tuple(
                slice(each * stride, each * stride + (kernel - 1) * dilation + 1, dilation)
                for each, stride, kernel, dilation in zip(place, strides, w.shape[2:], dilations, strict=True)
            )
            seen = padded[(slice(None), channels, *taps)]
            found[(slice(None), output, *place)] = (seen * w[output]).sum(axis=tuple(range(1, x.ndim)))
    return found


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 4, 9), (6, 2, 3), {"group": 2, "strides": [2], "dilations": [2], "pads": [3, 1]}),
        ((1, 1, 5), (1, 1, 5), {}),
        ((2, 4, 7, 6), (2, 2, 3, 2), {"group": 2, "strides": [2, 1], "dilations": [1, 3], "pads": [1, 2, 0, 3]}),
        ((1, 3, 4, 5, 6), (2, 3, 2, 3, 1), {"strides": [1, 2, 3], "pads": [1, 0, 2, 0, 1, 1]}),
        ((2, 4, 5, 4, 4), (6, 2, 3, 2, 2), {"group": 2, "dilations": [2, 1, 2], "pads": [2, 1, 0, 3, 0, 2]}),
        ((1, 2, 3, 4, 3, 4), (3, 2, 2, 2, 1, 2), {"strides": [1, 2, 1, 2], "pads": [0, 1, 0, 0, 2, 1, 1, 0]}),
        ((0, 2, 5, 5), (3, 2, 3, 3), {}),
    ],
)
@pytest.mark.parametrize("types", [(U, U), (U, I), (I, U), (I, I)])
def test_convolutions_of_any_rank(x: tuple[int, ...], w: tuple[int, ...], attributes: Any, types: Any) -> None:
    rng = np.random.default_rng(9)
    rank = len(x) - 2
    data, weights = numbers(rng, types[0], *x), numbers(rng, types[1], *w)
    zero, zeros = numbers(rng, types[0]), numbers(rng, types[1], w[0])
    full = {"strides": [1] * rank, "dilations": [1] * rank, "pads": [0] * 2 * rank, "group": 1, **attributes}
    sums = convolved(data - zero, weights - zeros.reshape(-1, *[1] * (rank + 1)), **full)
    inputs = {
        "x": tensor(types[0], data), "w": tensor(types[1], weights),
        "x_zero_point": tensor(types[0], zero), "w_zero_point": tensor(types[1], zeros),
    }  # fmt: skip
    found = run("onnx.ConvInteger", inputs, attributes, opset=10)["y"]
    assert found.shape == sums.shape
    assert found.tolist() == sums.tolist()

    bias, scales = rng.integers(-9000, 9000, w[0]), rng.uniform(0.01, 0.09, w[0]).astype(np.float32)
    given = {
        **inputs, "x_scale": tensor("f32", 0.71), "w_scale": tensor("f32", scales), "y_scale": tensor("f32", 9.75),
        "y_zero_point": tensor(U, 101), "B": tensor("i32", bias),
    }  # fmt: skip
    laid = (1, w[0], *[1] * rank)
    for implementation in COLUMNS:
        expected = quantized(
            sums + bias.reshape(laid), np.array(np.float32(0.71)), scales.reshape(laid), np.float32(9.75), 101, "f32",
            reference=implementation == "reference",
        )  # fmt: skip
        y = run("onnx.QLinearConv", given, attributes, opset=10, implementation=implementation)["y"]
        assert y.tolist() == expected.tolist(), implementation


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("size", [(7,), (6, 7), (5, 6, 7)])
def test_auto_pad(auto_pad: str, size: tuple[int, ...]) -> None:
    """The size of the output, for each dimension."""
    rng, rank = np.random.default_rng(10), len(size)
    x, w = numbers(rng, U, 1, 2, *size), numbers(rng, U, 3, 2, *(4, 3, 2)[:rank])
    strides, dilations = [2, 1, 3][:rank], [1, 2, 1][:rank]
    before, after = [], []
    for length, kernel, stride, dilation in zip(size, w.shape[2:], strides, dilations, strict=True):
        effective = (kernel - 1) * dilation + 1
        total = 0 if auto_pad == "VALID" else max((-(-length // stride) - 1) * stride + effective - length, 0)
        less, more = total // 2, total - total // 2
        before.append(less if auto_pad == "SAME_UPPER" else more)
        after.append(more if auto_pad == "SAME_UPPER" else less)
    expected = convolved(x - 5, w, strides, dilations, [*before, *after], 1)
    inputs = {"x": tensor(U, x), "w": tensor(U, w), "x_zero_point": tensor(U, [5])}
    attributes = {"auto_pad": auto_pad, "strides": strides, "dilations": dilations, "kernel_shape": list(w.shape[2:])}
    assert run("onnx.ConvInteger", inputs, attributes, opset=10)["y"].tolist() == expected.tolist()


@pytest.mark.parametrize("x", [(1, 1, 0, 2, 2), (1, 1, 2, 0, 2), (1, 1, 0, 2), (1, 1, 0), (0, 1, 2, 2, 2)])
def test_an_input_that_is_all_padding(x: tuple[int, ...]) -> None:
    """Its sums are 0: padding is the zero point."""
    rank = len(x) - 2
    inputs = {
        "x": tensor(U, np.zeros(x)), "w": tensor(U, np.full((2, 1, *[1] * rank), 7)), "x_zero_point": tensor(U, 9),
    }  # fmt: skip
    y = run("onnx.ConvInteger", inputs, {"pads": [1] * 2 * rank}, opset=10)["y"]
    assert y.shape == (x[0], 2, *(size + 2 for size in x[2:]))
    assert not y.any()


def test_the_tie_with_an_odd_zero_point_tells_the_implementations_apart() -> None:
    inputs: dict[str, TensorValue] = {
        "a": tensor(U, [[1], [3], [5]]), "a_scale": tensor("f32", 0.5), "a_zero_point": tensor(U, 0),
        "b": tensor(U, [[1]]), "b_scale": tensor("f32", 1.0), "b_zero_point": tensor(U, 0),
        "y_scale": tensor("f32", 1.0), "y_zero_point": tensor(U, 3),
    }  # fmt: skip
    for implementation, expected in (("onnxruntime", [3, 5, 5]), ("reference", [4, 4, 6])):
        found = run("onnx.QLinearMatMul", inputs, opset=10, implementation=implementation)["y"]
        assert found.ravel().tolist() == expected


def test_sums_wrap() -> None:
    depth = 70_000
    inputs = {"A": tensor(U, np.full((1, depth), 255)), "B": tensor(U, np.full((depth, 1), 255))}
    found = run("onnx.MatMulInteger", inputs, opset=10)["Y"]
    assert found.tolist() == [[255 * 255 * depth - (1 << 32)]]


MATMUL = {"A": tensor(U, np.ones((3, 4))), "B": tensor(U, np.ones((4, 5)))}
CONV = {"x": tensor(U, np.ones((1, 2, 5, 5))), "w": tensor(U, np.ones((3, 2, 3, 3)))}
QMATMUL = {
    "a": MATMUL["A"], "a_scale": tensor("f32", 1.0), "a_zero_point": tensor(U, 0),
    "b": MATMUL["B"], "b_scale": tensor("f32", 1.0), "b_zero_point": tensor(U, 0),
    "y_scale": tensor("f32", 1.0), "y_zero_point": tensor(U, 0),
}  # fmt: skip
QCONV = {
    "x": CONV["x"], "x_scale": tensor("f32", 1.0), "x_zero_point": tensor(U, 0),
    "w": CONV["w"], "w_scale": tensor("f32", 1.0), "w_zero_point": tensor(U, 0),
    "y_scale": tensor("f32", 1.0), "y_zero_point": tensor(U, 0),
}  # fmt: skip
CALLS: dict[str, dict[str, TensorValue]] = {
    "MatMulInteger": MATMUL,
    "ConvInteger": CONV,
    "QLinearMatMul": QMATMUL,
    "QLinearConv": QCONV,
}


@pytest.mark.parametrize(
    ("operator", "changed", "attributes", "error", "pointer"),
    [
        ("MatMulInteger", {"A": tensor(U, 1)}, {}, TypeFitError, "/inputs/A"),
        ("MatMulInteger", {"B": tensor(U, np.ones((5, 4)))}, {}, TypeFitError, "/inputs/B"),
        ("MatMulInteger", {"a_zero_point": tensor(I, 1)}, {}, UnsupportedError, "/inputs/a_zero_point"),
        ("MatMulInteger", {"a_zero_point": tensor(U, [1] * 4)}, {}, TypeFitError, "/inputs/a_zero_point"),
        ("MatMulInteger", {"b_zero_point": tensor(U, [1] * 4)}, {}, TypeFitError, "/inputs/b_zero_point"),
        ("MatMulInteger", {"b_zero_point": tensor(U, [[1]] * 4)}, {}, TypeFitError, "/inputs/b_zero_point"),
        ("MatMulInteger", {"A": tensor("i32", [[1]])}, {}, UnsupportedError, "/inputs/A"),
        ("ConvInteger", {"x": tensor(U, [[1]]), "w": tensor(U, [[1]])}, {}, TypeFitError, "/inputs/x"),
        ("ConvInteger", {"w": tensor(U, np.ones((3, 2, 3)))}, {}, TypeFitError, "/inputs/w"),
        ("ConvInteger", {"w": tensor(U, np.ones((3, 3, 3, 3)))}, {}, TypeFitError, "/inputs/w"),
        ("ConvInteger", {"w": tensor(U, np.ones((3, 2, 6, 3)))}, {}, TypeFitError, "/inputs/x"),
        ("ConvInteger", {"x_zero_point": tensor(U, [1, 2])}, {}, TypeFitError, "/inputs/x_zero_point"),
        ("ConvInteger", {"w_zero_point": tensor(U, [1, 2])}, {}, TypeFitError, "/inputs/w_zero_point"),
        ("ConvInteger", {"w_zero_point": tensor(I, 1)}, {}, UnsupportedError, "/inputs/w_zero_point"),
        ("ConvInteger", {}, {"group": 2}, TypeFitError, "/inputs/w"),
        ("ConvInteger", {}, {"group": 0}, ParameterError, "/attributes/group"),
        ("ConvInteger", {}, {"pads": [1, 1]}, ParameterError, "/attributes/pads"),
        ("ConvInteger", {}, {"pads": [0, 0, 0, -1]}, ParameterError, "/attributes/pads"),
        ("ConvInteger", {}, {"pads": [0] * 4, "auto_pad": "VALID"}, ParameterError, "/attributes/pads"),
        ("ConvInteger", {}, {"strides": [1]}, ParameterError, "/attributes/strides"),
        ("ConvInteger", {}, {"strides": [1, 0]}, ParameterError, "/attributes/strides"),
        ("ConvInteger", {}, {"dilations": [0, 1]}, ParameterError, "/attributes/dilations"),
        ("ConvInteger", {}, {"kernel_shape": [3, 2]}, ParameterError, "/attributes/kernel_shape"),
        ("ConvInteger", {}, {"auto_pad": "same"}, RequantError, "/attributes/auto_pad"),
        ("QLinearMatMul", {"a_scale": tensor("f32", [1] * 4)}, {}, TypeFitError, "/inputs/a_scale"),
        ("QLinearMatMul", {"y_scale": tensor("f32", [1] * 3)}, {}, TypeFitError, "/inputs/y_scale"),
        ("QLinearMatMul", {"y_scale": tensor("f32", 0.0)}, {}, ParameterError, "/inputs/y_scale"),
        ("QLinearMatMul", {"y_zero_point": tensor(U, [1] * 3)}, {}, TypeFitError, "/inputs/y_zero_point"),
        ("QLinearMatMul", {"b_zero_point": tensor(I, 1)}, {}, UnsupportedError, "/inputs/b_zero_point"),
        ("QLinearMatMul", {"b_scale": tensor("f16", 1)}, {}, UnsupportedError, "/inputs/b_scale"),
        ("QLinearMatMul", {"a_zero_point": tensor("f8E5M2", 0)}, {}, UnsupportedError, "/inputs/a_zero_point"),
        (
            "QLinearMatMul",
            {"a": tensor("f8E5M2", np.ones((3, 4))), "a_zero_point": tensor("f8E5M2", 0)},
            {},
            UnsupportedError,
            "/inputs/a",
        ),
        ("QLinearConv", {"B": tensor("i32", [1])}, {}, TypeFitError, "/inputs/B"),
        ("QLinearConv", {"x_scale": tensor("f32", [1] * 2)}, {}, TypeFitError, "/inputs/x_scale"),
        ("QLinearConv", {"w_scale": tensor("f32", [1] * 2)}, {}, TypeFitError, "/inputs/w_scale"),
        ("QLinearConv", {"w_scale": tensor("f32", np.inf)}, {}, ParameterError, "/inputs/y_scale"),
    ],
)
def test_what_is_refused(operator: str, changed: Any, attributes: Any, error: Any, pointer: str) -> None:
    for version in operator_named(f"onnx.{operator}").versions[-1:]:
        with pytest.raises(error) as caught:
            run(f"onnx.{operator}", {**CALLS[operator], **changed}, attributes, opset=version)
        assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("operator", "pointer", "inputs"),
    [
        (
            "QLinearConv",
            "/inputs/w_scale",
            {"x": tensor(U, [[[1]]]), "x_scale": tensor("f32", 1.0), "x_zero_point": tensor(U, 0),
             "w": tensor(U, np.ones((MAX_FACTORS + 1, 1, 1))), "w_scale": tensor("f32", np.ones(MAX_FACTORS + 1)),
             "w_zero_point": tensor(U, 0), "y_scale": tensor("f32", 1.0), "y_zero_point": tensor(U, 0)},
        ),
        (
            "QLinearMatMul",
            "/inputs/b_scale",
            {"a": tensor(U, [[1]]), "a_scale": tensor("f32", 1.0), "a_zero_point": tensor(U, 0),
             "b": tensor(U, np.ones((1, MAX_FACTORS + 1))), "b_scale": tensor("f32", np.ones(MAX_FACTORS + 1)),
             "b_zero_point": tensor(U, 0), "y_scale": tensor("f32", 1.0), "y_zero_point": tensor(U, 0)},
        ),
    ],
)  # fmt: skip
def test_factors_are_derived_for_so_many_channels(operator: str, pointer: str, inputs: Any) -> None:
    with pytest.raises(LimitError, match=str(MAX_FACTORS)) as caught:
        run(f"onnx.{operator}", inputs, opset=21)
    assert caught.value.pointer == pointer


def test_versions() -> None:
    narrow = {**QMATMUL, **{f"{name}_scale": tensor("f16", 1) for name in "aby"}}
    with pytest.raises(UnsupportedError, match="a_scale of f16 from opset 21"):
        run("onnx.QLinearMatMul", narrow, opset=20)
    assert output_types("onnx.QLinearMatMul", narrow, opset=28) == {"y": "tensor<3x5xui8>"}
    floats_ = {**QMATMUL, "a": tensor("f8E4M3FN", np.ones((3, 4)))}
    with pytest.raises(UnsupportedError, match="a of f8E4M3FN from opset 21"):
        run("onnx.QLinearMatMul", floats_, opset=10)
    with pytest.raises(UnsupportedError, match="opset 10"):
        run("onnx.ConvInteger", CONV, opset=9)


def test_the_work_is_known_before_it_is_done() -> None:
    """An outer product, and a convolution padded to nearly nothing: nothing is computed to know their size."""
    wide = {"A": tensor(U, np.ones((60_000, 1))), "B": tensor(U, np.ones((1, 60_000)))}
    operator = operator_named("onnx.MatMulInteger")
    work = operator.work_of(checked_call(operator, 10, "", wide, {}))
    assert (work.elements, work.products >= 60_000**2) == (60_000**2, True)
    pads = {"pads": [2**31 - 1] * 6}
    cube = {"x": tensor(U, np.ones((1, 1, 2, 2, 2))), "w": tensor(U, np.ones((1, 1, 1, 1, 1)))}
    operator = operator_named("onnx.ConvInteger")
    assert operator.work_of(checked_call(operator, 10, "", cube, pads)).elements == (2**32) ** 3
