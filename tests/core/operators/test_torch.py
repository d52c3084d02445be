"""torch's operators against what torch gave (`torch_quantize.json`), and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from requant.errors import InvalidRequestError, ParameterError, RequantError, TypeFitError, UnknownNameError
from tests.support.operator_calls import run, tensor
from tests.vector_cases import load
from tests.vector_cases.conversion import floats

VECTORS = load("torch_quantize")
BOUNDS = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-(2**15), 2**15 - 1), "int32": (-(2**31), 2**31 - 1)}
ELEMENTS = {
    "quint8": "ui8",
    "qint8": "i8",
    "qint32": "i32",
    "uint8": "ui8",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
}


def scale_of(case: Any) -> float:
    return float.fromhex(case["scale_f64"]) if "scale_f64" in case else float(floats([case["scale"]])[0])


def bounds(case: Any) -> dict[str, int]:
    lowest, highest = BOUNDS[case["dtype"]]
    return {"quant_min": case.get("qmin", lowest), "quant_max": case.get("qmax", highest)}


def channels(case: Any) -> dict[str, Any]:
    scales = floats(case["scale"] if isinstance(case["scale"], list) else [case["scale"]])
    points = case["zp"] if isinstance(case["zp"], list) else [case["zp"]]
    return {"scales": tensor("f32", scales), "zero_points": tensor("i32", points)}


def quantized(operator: str, case: Any) -> list[int]:
    """The answer to a case, by the operator that it is of."""
    x = floats(case["x"])
    decomposed = "decomposed" in operator
    attributes: dict[str, Any] = {"dtype": case["dtype"], **(bounds(case) if decomposed else {})}
    if "per_channel" in operator:
        shaped = x.reshape(case.get("shape", (1, x.size)))
        inputs = {"input": tensor("f32", shaped), **channels(case)}
        found = run(f"torch.{operator}", inputs, {**attributes, "axis": case.get("axis", 0)})
    elif operator.endswith(".tensor"):
        single = {"scale": tensor("f32", scale_of(case)), "zero_point": tensor("i64", [case["zp"]])}
        found = run(f"torch.{operator}", {"input": tensor("f32", x), **single}, attributes)
    else:
        attributes |= {"scale": scale_of(case), "zero_point": case["zp"]}
        found = run(f"torch.{operator}", {"input": tensor("f32", x)}, attributes)
    return found["output"].ravel().tolist()


GROUPS = {
    "quantize_per_tensor": "quantize_per_tensor",
    "quantize_per_channel": "quantize_per_channel",
    "decomposed_quantize_per_tensor": "quantized_decomposed.quantize_per_tensor",
    "decomposed_quantize_per_tensor_tensor": "quantized_decomposed.quantize_per_tensor.tensor",
    "decomposed_per_channel": "quantized_decomposed.quantize_per_channel",
}
CASES = [(operator, group, index) for group, operator in GROUPS.items() for index in range(len(VECTORS[group]))]


@pytest.mark.parametrize(("operator", "group", "index"), CASES)
def test_a_vector(operator: str, group: str, index: int) -> None:
    case = VECTORS[group][index]
    assert quantized(operator, case) == case["q"]


@pytest.mark.parametrize("index", range(len(VECTORS["special"])))
def test_special_values(index: int) -> None:
    case = VECTORS["special"][index]
    kind = "per_channel" if "per_channel" in case["op"] else "per_tensor"
    prefix = "quantized_decomposed." if "decomposed" in case["op"] else ""
    assert quantized(f"{prefix}quantize_{kind}", case) == case["q"]


@pytest.mark.parametrize("case", VECTORS["fake_quantize"])
def test_fake_quantize(case: Any) -> None:
    x, per_channel = floats(case["x"]), isinstance(case["zp"], list)
    limits = {"quant_min": case["qmin"], "quant_max": case["qmax"]}
    if per_channel:
        inputs = {"input": tensor("f32", x.reshape(case["shape"])), **channels(case)}
        found = run("torch.fake_quantize_per_channel_affine", inputs, {"axis": case["axis"], **limits})
    else:
        attributes = {"scale": scale_of(case), "zero_point": case["zp"], **limits}
        found = run("torch.fake_quantize_per_tensor_affine", {"input": tensor("f32", x)}, attributes)
    assert found["output"].ravel().tobytes() == floats(case["y"]).tobytes()


@pytest.mark.parametrize("case", VECTORS["dequantize"])
def test_dequantize(case: Any) -> None:
    storage = ELEMENTS[case["dtype"]].replace("ui", "u")
    text = f"!quant.uniform<{storage}:f32, {scale_of(case):.17e}:{case['zp']}>"
    found = run("torch.dequantize", {"input": tensor(text, case["q"])})["output"]
    assert found.tobytes() == floats(case["y"]).tobytes()
    if case["dtype"] != "qint32":
        dtype = case["dtype"].removeprefix("q")
        attributes: dict[str, Any] = {"scale": scale_of(case), "zero_point": case["zp"], "dtype": dtype}
        attributes |= bounds({"dtype": dtype})
        stored = {"input": tensor(ELEMENTS[dtype], case["q"])}
        again = run("torch.quantized_decomposed.dequantize_per_tensor", stored, attributes)["output"]
        assert again.tobytes() == found.tobytes()


X = {"input": tensor("f32", [[0.5, 1.0], [2.0, 3.0]])}
EAGER: dict[str, Any] = {"scale": 0.5, "zero_point": 3, "dtype": "quint8"}
NARROW: dict[str, Any] = {"scale": 0.5, "zero_point": 3, "dtype": "uint8", "quant_min": 0, "quant_max": 4}
BOUNDED: dict[str, Any] = {"dtype": "uint8", "quant_min": 0, "quant_max": 255}
PAIRS = {"scales": tensor("f32", [0.5, 1.0]), "zero_points": tensor("i64", [1, 2])}


def test_bounds_and_channels() -> None:
    assert run("torch.quantized_decomposed.quantize_per_tensor", X, NARROW)["output"].tolist() == [[4, 4], [4, 4]]
    found = run("torch.quantize_per_channel", {**X, **PAIRS}, {"axis": 1, "dtype": "quint8"})["output"]
    assert found.tolist() == [[2, 3], [5, 5]]
    back = run(
        "torch.quantized_decomposed.dequantize_per_channel",
        {"input": tensor("ui8", found), **PAIRS},
        {"axis": 1, "dtype": "uint8", "quant_min": 0, "quant_max": 255, "out_dtype": "float16"},
    )["output"]
    assert (back.dtype, back.tolist()) == (np.dtype(np.float16), [[0.5, 1.0], [2.0, 3.0]])


def test_nan_is_cast_after_the_bounds() -> None:
    """torch clamps NaN to NaN, and then casts: 0, but -2^31 to 32 bits, whatever the bounds are."""
    x = {"input": tensor("f32", [np.nan, np.inf, -np.inf])}
    for dtype, nan in (("uint8", 0), ("int8", 0), ("int16", 0), ("int32", -(1 << 31))):
        attributes = {**NARROW, "zero_point": 7, "dtype": dtype, "quant_min": 5, "quant_max": 90}
        found = run("torch.quantized_decomposed.quantize_per_tensor", x, attributes)["output"]
        assert found.tolist() == [nan, 90, 5], dtype


def test_fake_quantize_per_channel_converts_to_int64() -> None:
    """What int64 does not hold becomes its least number there, and then the lowest; per tensor it is clamped."""
    x = tensor("f32", [[np.nan, np.inf, -np.inf, 9.3e18, -9.3e18, 9.2e18, 3.0]])
    bounds = {"quant_min": 0, "quant_max": 9}
    channel = {"scales": tensor("f32", [1.0]), "zero_points": tensor("i32", [2])}
    found = run("torch.fake_quantize_per_channel_affine", {"input": x, **channel}, {"axis": 0, **bounds})["output"]
    assert found.tolist() == [[-2, -2, -2, -2, -2, 7, 3]]
    one: dict[str, Any] = {"scale": 1.0, "zero_point": 2, **bounds}
    found = run("torch.fake_quantize_per_tensor_affine", {"input": x}, one)["output"]
    assert found.tolist() == [[-2, 7, -2, 7, -2, 7, 3]]


def test_zero_points_of_i64_do_not_wrap() -> None:
    q = tensor("i32", [[-(1 << 31), 5]])
    attributes: dict[str, Any] = {"axis": 0, "dtype": "int32", "quant_min": -(1 << 31), "quant_max": (1 << 31) - 1}
    for index, first in (("i64", -(2.0**31)), ("i32", 2.0**31)):
        inputs = {"input": q, "scales": tensor("f32", [1.0]), "zero_points": tensor(index, [1])}
        found = run("torch.quantized_decomposed.dequantize_per_channel", inputs, attributes)["output"]
        assert found.tolist() == [[first, 4]], index


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "error", "pointer"),
    [
        ("quantize_per_tensor", X, {**EAGER, "zero_point": 256}, ParameterError, "/attributes/zero_point"),
        ("quantize_per_tensor", X, {**EAGER, "scale": 0.0}, ParameterError, "/attributes/scale"),
        ("quantize_per_tensor", X, {**EAGER, "scale": -1.0}, ParameterError, "/attributes/scale"),
        ("quantize_per_tensor", X, {**EAGER, "scale": 1e60}, ParameterError, "/attributes/scale"),
        ("quantize_per_tensor", X, {**EAGER, "dtype": "uint8"}, UnknownNameError, "/attributes/dtype"),
        ("quantize_per_tensor", X, {"scale": 1.0}, InvalidRequestError, None),
        ("quantize_per_channel", {**X, **PAIRS}, {"axis": 2, "dtype": "qint8"}, ParameterError, "/attributes/axis"),
        ("quantize_per_channel", {**X, **PAIRS}, {"axis": -1, "dtype": "qint8"}, ParameterError, "/attributes/axis"),
        (
            "quantize_per_channel",
            {**X, **PAIRS, "scales": tensor("f32", [1.0])},
            {"axis": 0, "dtype": "qint8"},
            TypeFitError,
            "/inputs/scales",
        ),
        (
            "quantized_decomposed.quantize_per_tensor",
            X,
            {**NARROW, "quant_max": 256},
            ParameterError,
            "/attributes/quant_max",
        ),
        (
            "quantized_decomposed.quantize_per_tensor",
            X,
            {**NARROW, "quant_min": 5},
            ParameterError,
            "/attributes/quant_min",
        ),
        (
            "quantized_decomposed.quantize_per_tensor.tensor",
            {**X, "scale": tensor("f32", [1.0, 2.0]), "zero_point": tensor("i64", 0)},
            BOUNDED,
            TypeFitError,
            "/inputs/scale",
        ),
        (
            "quantized_decomposed.quantize_per_tensor.tensor",
            {**X, "scale": tensor("f32", 1.0), "zero_point": tensor("i64", 1 << 40)},
            BOUNDED,
            ParameterError,
            "/inputs/zero_point",
        ),
        (
            "quantized_decomposed.dequantize_per_tensor",
            {"input": tensor("i8", [1])},
            NARROW,
            ParameterError,
            "/attributes/dtype",
        ),
    ],
)
def test_what_is_refused(
    operator: str, inputs: Any, attributes: Any, error: type[RequantError], pointer: str | None
) -> None:
    with pytest.raises(error) as caught:
        run(f"torch.{operator}", inputs, attributes)
    assert caught.value.pointer == pointer
