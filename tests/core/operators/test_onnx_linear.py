"""ONNX's QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear against oracles, and what each version refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requant.errors import LimitError, ParameterError, PreconditionError, RequantError, TypeFitError, UnsupportedError
from requant.operators.onnx.operands import PROFILES, SINCE_OPSET
from tests.oracles.operators import onnx_dequantize, onnx_quantize
from tests.support.cases import examples
from tests.support.operator_calls import output_types, run, tensor

QUANTIZE, DEQUANTIZE, DYNAMIC = "onnx.QuantizeLinear", "onnx.DequantizeLinear", "onnx.DynamicQuantizeLinear"
NUMBERS = [
    0.0,
    -0.0,
    0.5,
    1.5,
    2.5,
    -0.5,
    -2.5,
    127.5,
    1e9,
    3e9,
    -3e9,
    2.0**31,
    -(2.0**31),
    np.inf,
    -np.inf,
    np.nan,
    1e-42,
    0.1,
]
INTEGERS = ("i2", "ui2", "i4", "ui4", "i8", "ui8", "i16", "ui16")
ONE = {"x": tensor("f32", [1.0, 2.0]), "y_scale": tensor("f32", 0.5)}


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """Shape of x, shape of the scale, axis and block size."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    kind = draw(st.sampled_from(["tensor", "one", "axis", "blocks"]))
    if kind == "tensor":
        return shape, (), axis, 0
    if kind == "one":
        return shape, (1,), axis, 0
    if kind == "axis":
        return shape, (shape[axis],), axis, 0
    block = draw(st.integers(1, 5))
    place = axis % len(shape)
    return shape, tuple(-(-size // block) if i == place else size for i, size in enumerate(shape)), axis, block


def storage_bounds(element: str) -> tuple[int, int]:
    bits = int(element.lstrip("ui"))
    return (0, (1 << bits) - 1) if element[0] == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


@settings(max_examples=examples(150))
@given(st.data(), layouts(), st.sampled_from(INTEGERS), st.sampled_from([*PROFILES]), st.booleans())
def test_quantize_is_the_oracles(
    data: st.DataObject, layout: Any, element: str, implementation: str, has_zero_point: bool
) -> None:
    shape, scales, axis, block = layout
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x = rng.choice(NUMBERS, shape).astype(np.float32)
    scale = rng.choice([0.5, 0.1, 1.0, 3.0], scales).astype(np.float32)
    low, high = storage_bounds(element)
    point = rng.integers(low, high + 1, scales) if has_zero_point else None
    inputs = {"x": tensor("f32", x), "y_scale": tensor("f32", scale)}
    attributes: dict[str, Any] = {"axis": axis, "block_size": block}
    if point is None:
        attributes["output_dtype"] = {"ui8": 2, "i8": 3, "ui16": 4, "i16": 5, "ui4": 21, "i4": 22, "ui2": 25, "i2": 26}[
            element
        ]
    else:
        inputs["y_zero_point"] = tensor(element, point)
    found = run(QUANTIZE, inputs, attributes, opset=25, implementation=implementation)["y"]
    storage = element.replace("ui", "u")
    expected = onnx_quantize(x, scale, point, storage, axis, block, profile=PROFILES[implementation])
    assert found.ravel().tolist() == expected


@settings(max_examples=examples(150))
@given(st.data(), layouts(), st.sampled_from(INTEGERS), st.sampled_from(["f32", "f16", "bf16"]), st.booleans())
def test_dequantize_is_the_oracles(
    data: st.DataObject, layout: Any, element: str, to: str, has_zero_point: bool
) -> None:
    shape, scales, axis, block = layout
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    low, high = storage_bounds(element)
    x = rng.integers(low, high + 1, shape)
    scale = rng.choice([0.5, 0.1, 1.0, 3.0, 1e-6, 60000.0], scales).astype(np.float32)
    point = rng.integers(low, high + 1, scales) if has_zero_point else None
    inputs = {"x": tensor(element, x), "x_scale": tensor("f32", scale)}
    if point is not None:
        inputs["x_zero_point"] = tensor(element, point)
    attributes: dict[str, Any] = {
        "axis": axis,
        "block_size": block,
        "output_dtype": {"f32": 1, "f16": 10, "bf16": 16}[to],
    }
    for implementation in PROFILES:
        found = run(DEQUANTIZE, inputs, attributes, opset=25, implementation=implementation)["y"].ravel()
        expected = onnx_dequantize(x, scale, point, to, axis, block)
        if to == "bf16":
            found = (found.astype(np.uint32) << 16).view(np.float32)
        assert found.astype(np.float64).tolist() == expected


@pytest.mark.parametrize(("element", "opset"), SINCE_OPSET.items())
def test_each_type_is_refused_before_its_version(element: str, opset: int) -> None:
    inputs = {**ONE, "y_zero_point": tensor(element, 0)}
    stored = {"x": tensor(element, [0, 0]), "x_scale": tensor("f32", 0.5)}
    run(QUANTIZE, inputs, opset=opset)
    run(DEQUANTIZE, stored, opset=opset)
    if opset > 10:
        for name, call in ((QUANTIZE, inputs), (DEQUANTIZE, stored)):
            with pytest.raises(UnsupportedError, match=f"from opset {opset}"):
                run(name, call, opset=opset - 1)


@pytest.mark.parametrize(
    ("name", "value", "since"),
    [("axis", 0, 13), ("saturate", 0, 19), ("block_size", 0, 21), ("output_dtype", 3, 21), ("precision", 1, 23)],
)
def test_each_attribute_is_refused_before_its_version(name: str, value: int, since: int) -> None:
    run(QUANTIZE, ONE, {name: value}, opset=since)
    with pytest.raises(UnsupportedError, match=f"{name} from opset {since}") as caught:
        run(QUANTIZE, ONE, {name: value}, opset=since - 1)
    assert caught.value.pointer == f"/attributes/{name}"


@pytest.mark.parametrize("opset", [0, 9, 29, -1, 2**31])
def test_opsets_that_are_not_there(opset: int) -> None:
    with pytest.raises(UnsupportedError, match="opset 10 to 28") as caught:
        run(QUANTIZE, ONE, opset=opset)
    assert caught.value.pointer == "/opset"


def test_a_version_between_two_is_the_older_one() -> None:
    with pytest.raises(UnsupportedError, match="y_zero_point of i16 from opset 21"):
        run(QUANTIZE, {**ONE, "y_zero_point": tensor("i16", 0)}, opset=20)
    with pytest.raises(UnsupportedError, match="they may differ from opset 23"):
        run(QUANTIZE, {**ONE, "y_scale": tensor("f16", 0.5)}, opset=22)
    run(QUANTIZE, {**ONE, "y_scale": tensor("f16", 0.5)}, opset=27)


GRID = tensor("f32", np.zeros((3, 5)))


def f32(*shape: int) -> Any:
    return tensor("f32", np.ones(shape))


@pytest.mark.parametrize(
    ("inputs", "attributes", "opset", "error", "pointer"),
    [
        ({"x": GRID, "y_scale": f32(5)}, {}, 10, TypeFitError, "/inputs/y_scale"),
        ({"x": GRID, "y_scale": f32(3)}, {}, 13, TypeFitError, "/inputs/y_scale"),
        ({"x": GRID, "y_scale": f32(5)}, {"axis": 2}, 13, ParameterError, "/attributes/axis"),
        ({"x": GRID, "y_scale": f32(5)}, {"axis": -3}, 13, ParameterError, "/attributes/axis"),
        ({"x": f32(6), "y_scale": f32(6)}, {}, 13, ParameterError, "/attributes/axis"),
        ({"x": f32(), "y_scale": f32(2)}, {}, 13, ParameterError, "/attributes/axis"),
        ({"x": GRID, "y_scale": f32(3, 5)}, {}, 19, TypeFitError, "/inputs/y_scale"),
        ({"x": GRID, "y_scale": f32(3, 5)}, {}, 21, TypeFitError, "/inputs/y_scale"),
        ({"x": GRID, "y_scale": f32(3, 2)}, {"block_size": 2}, 21, TypeFitError, "/inputs/y_scale"),
        ({"x": GRID, "y_scale": f32(3, 4)}, {"block_size": 2}, 21, TypeFitError, "/inputs/y_scale"),
        ({"x": GRID, "y_scale": f32()}, {"block_size": 2}, 21, TypeFitError, "/inputs/y_scale"),
        ({"x": GRID, "y_scale": f32(3, 3)}, {"block_size": 2, "axis": 5}, 21, ParameterError, "/attributes/axis"),
        ({"x": GRID, "y_scale": f32(3, 3)}, {"block_size": -2}, 21, ParameterError, "/attributes/block_size"),
        ({"x": GRID, "y_scale": f32(5), "y_zero_point": tensor("i8", 0)}, {}, 21, TypeFitError, "/inputs/y_zero_point"),
        ({**ONE, "y_zero_point": tensor("i8", 0)}, {"output_dtype": 2}, 21, TypeFitError, "/attributes/output_dtype"),
        (ONE, {"output_dtype": 1}, 21, ParameterError, "/attributes/output_dtype"),
        (ONE, {"output_dtype": 25}, 21, UnsupportedError, "/attributes/output_dtype"),
        (ONE, {"precision": 11}, 23, ParameterError, "/attributes/precision"),
        (ONE, {"saturate": 2}, 19, ParameterError, "/attributes/saturate"),
        ({**ONE, "y_zero_point": tensor("f4E2M1FN", 3)}, {}, 23, UnsupportedError, "/inputs/y_zero_point"),
        ({**ONE, "y_zero_point": tensor("i4", 8)}, {}, 21, RequantError, "/inputs/y_zero_point"),
        ({**ONE, "x": tensor("f64", [1.0])}, {}, 28, UnsupportedError, "/inputs/x"),
        ({"x": f32(1 << 20, 2), "y_scale": f32(1 << 20, 2)}, {"block_size": 1}, 21, LimitError, "/inputs/y_scale"),
    ],
)
def test_what_quantize_refuses(
    inputs: Any, attributes: Any, opset: int, error: type[RequantError], pointer: str
) -> None:
    with pytest.raises(error) as caught:
        run(QUANTIZE, inputs, attributes, opset=opset)
    assert caught.value.pointer == pointer


def test_the_type_of_the_output() -> None:
    assert output_types(QUANTIZE, ONE, opset=21) == {"y": "tensor<2xui8>"}
    assert output_types(QUANTIZE, ONE, {"output_dtype": 22}, opset=21) == {"y": "tensor<2xi4>"}
    assert output_types(QUANTIZE, {**ONE, "y_zero_point": tensor("f8E5M2", 0)}, opset=21) == {"y": "tensor<2xf8E5M2>"}
    stored = {"x": tensor("i8", [1, 2]), "x_scale": tensor("f8E8M0FNU", 127)}
    assert output_types(DEQUANTIZE, stored, {"output_dtype": 10}, opset=24) == {"y": "tensor<2xf16>"}
    with pytest.raises(UnsupportedError, match="output_dtype is needed"):
        output_types(DEQUANTIZE, stored, opset=24)


def test_the_last_block_may_be_short_and_one_scale_has_no_axis() -> None:
    x = {"x": tensor("i8", [[1, 2, 3, 4, 5]]), "x_scale": tensor("f32", [[1.0, 10.0, 100.0]])}
    assert run(DEQUANTIZE, x, {"block_size": 2}, opset=21)["y"].tolist() == [[1, 2, 30, 40, 500]]
    one = {"x": tensor("i8", [[1, 2, 3, 4, 5]]), "x_scale": tensor("f32", [2.0])}
    assert run(DEQUANTIZE, one, {"axis": 99}, opset=21)["y"].tolist() == [[2, 4, 6, 8, 10]]


def test_empty_tensors() -> None:
    for shape, scales, attributes in (((0,), (), {}), ((2, 0), (2,), {"axis": 0}), ((2, 0), (2, 0), {"block_size": 3})):
        x = {"x": tensor("f32", np.zeros(shape)), "y_scale": tensor("f32", np.ones(scales))}
        assert run(QUANTIZE, x, attributes, opset=21)["y"].shape == shape
    assert run(DYNAMIC, {"x": tensor("f32", [])}, opset=11)["y_scale"].tolist() == 1.0


def test_int32_with_a_zero_point() -> None:
    """onnxruntime's answer wraps: the operator's text says that there is none. The reference rounds q to f32 first."""
    x = {"x": tensor("i32", [16777217, -(2**31)]), "x_scale": tensor("f32", 1.0), "x_zero_point": tensor("i32", 1)}
    with pytest.raises(UnsupportedError, match="must be 0"):
        run(DEQUANTIZE, x, opset=10)
    found = run(DEQUANTIZE, x, opset=10, implementation="reference")["y"]
    assert found.tolist() == [16777215.0, -2147483648.0]


def test_precision_is_the_references_alone() -> None:
    """0.3 / 0.1 is 3.0000000 in f32 and 3.0007 in f16, which tells at a tie: 2.5 and 2.502."""
    x = {"x": tensor("f32", [0.2499, 0.75]), "y_scale": tensor("f32", 0.09996)}
    plain = run(QUANTIZE, x, opset=23)["y"]
    assert run(QUANTIZE, x, {"precision": 10}, opset=23)["y"].tolist() == plain.tolist()
    narrow = np.rint(np.array([0.2499, 0.75]).astype(np.float16) / np.float16(0.09996))
    assert run(QUANTIZE, x, {"precision": 10}, opset=23, implementation="reference")["y"].tolist() == narrow.tolist()


def test_the_sign_of_a_nan_of_a_small_float() -> None:
    """A NaN of x keeps its sign, then one of the scale; one that the division makes has that of x86-64."""
    nan = float("nan")
    for count in (1, 16, 33):
        for x, scale, negative in [
            (nan, 2.0, False), (-nan, 2.0, True), (nan, -nan, False), (-nan, nan, True),
            (1.0, nan, False), (-1.0, nan, False), (1.0, -nan, True), (np.inf, nan, False),
            (np.inf, np.inf, True), (-np.inf, np.inf, True), (0.0, 0.0, True), (-0.0, 0.0, True),
        ]:  # fmt: skip
            inputs = {"x": tensor("f32", [x] * count), "y_scale": tensor("f32", scale)}
            inputs["y_zero_point"] = tensor("f8E4M3FN", 0)
            assert run(QUANTIZE, inputs, opset=19)["y"].tobytes() == bytes([0xFF if negative else 0x7F]) * count, (
                x,
                scale,
            )


def test_saturate_of_small_floats() -> None:
    x = {"x": tensor("f32", [1e6, np.inf, -1e6]), "y_scale": tensor("f32", 1.0), "y_zero_point": tensor("f8E5M2", 0)}
    assert run(QUANTIZE, x, opset=19)["y"].tolist() == [0x7B, 0x7B, 0xFB]
    assert run(QUANTIZE, x, {"saturate": 0}, opset=19)["y"].tolist() == [0x7C, 0x7C, 0xFC]


def test_dynamic_quantization() -> None:
    found = run(DYNAMIC, {"x": tensor("f32", [0, 2, -3, -2.5, 1.34, 0.5])}, opset=11)
    assert found["y"].tolist() == [153, 255, 0, 26, 221, 179]
    assert (found["y_scale"].shape, found["y_zero_point"].tolist()) == ((), 153)
    assert found["y_scale"] == np.float32(5) / np.float32(255)
    zeros = {"x": tensor("f32", [0.0, 0.0])}
    assert run(DYNAMIC, zeros, opset=11)["y_scale"] == 1.0
    assert run(DYNAMIC, zeros, opset=11, implementation="reference")["y_scale"] == np.float32(1) / np.float32(255)


@pytest.mark.parametrize(("implementation", "says"), [("onnxruntime", "threads"), ("reference", "becomes NaN")])
def test_dynamic_quantization_of_nan_is_an_error(implementation: str, says: str) -> None:
    x = [8.0, 7.0, 6.0, 5.0, np.nan, 3.0, np.nan, 1.0]
    with pytest.raises(PreconditionError, match=says) as caught:
        run(DYNAMIC, {"x": tensor("f32", x)}, opset=11, implementation=implementation)
    assert (caught.value.index, caught.value.pointer) == (4, "/inputs/x")


@pytest.mark.parametrize(
    ("implementation", "opset", "real", "scale", "precision", "computed"),
    [
        ("onnxruntime", 23, "f16", "f16", 0, "f32"),
        ("onnxruntime", 23, "f32", "f32", 10, "f32"),
        ("onnxruntime_1_32", 22, "f16", "f16", 0, "f32"),
        ("onnxruntime_1_32", 23, "f16", "f16", 0, "f16"),
        ("onnxruntime_1_32", 23, "f16", "f16", 1, "f32"),
        ("onnxruntime_1_32", 23, "f16", "f32", 0, "f32"),
        ("onnxruntime_1_32", 23, "f32", "f16", 0, "f16"),
        ("onnxruntime_1_32", 23, "f32", "f32", 10, "f16"),
        ("onnxruntime_1_32", 23, "f32", "f16", 1, "f32"),
    ],
)
@pytest.mark.parametrize("element", ["i8", "i2", "i4", "f8E4M3FN"])
def test_the_type_that_onnxruntime_divides_in(
    implementation: str, opset: int, real: str, scale: str, precision: int, computed: str, element: str
) -> None:
    """As seen live (tests/interop/operators/test_onnx_grid.py): ignored to 1.31, then from opset 23 on as specified."""
    if element == "i2":
        if opset < 23:
            return
        opset = 25
    dtypes = {"f16": np.float16, "f32": np.float32}
    rng = np.random.default_rng(5)
    huge = [np.inf, 3e9, -3e9, 65519.0] if implementation == "onnxruntime_1_32" else []
    x = np.concatenate([rng.normal(0, 5, 5000), huge])
    with np.errstate(all="ignore"):
        given, factor = x.astype(dtypes[real]), np.asarray(0.1, dtypes[scale])
        quotients = (given.astype(dtypes[computed]) / factor.astype(dtypes[computed])).astype(np.float32)
    inputs = {"x": tensor(real, given), "y_scale": tensor(scale, factor)}
    inputs["y_zero_point"] = tensor(element, 0)
    attributes = {"precision": precision} if opset >= 23 else {}
    found = run(QUANTIZE, inputs, attributes, opset=opset, implementation=implementation)["y"]
    of_quotients = {"x": tensor("f32", quotients), "y_scale": tensor("f32", 1.0), "y_zero_point": tensor(element, 0)}
    assert np.array_equal(found, run(QUANTIZE, of_quotients, {}, opset=25, implementation=implementation)["y"])
