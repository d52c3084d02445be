"""torch's quantized_decomposed operators per token, group and channel, of parameters and casts: exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from requant.errors import (
    ParameterError,
    PreconditionError,
    RequantError,
    TensorDataError,
    TypeFitError,
    UnsupportedError,
)
from tests.oracles import ranges as range_oracle
from tests.oracles.profiles import F32, F64, FORMATS, Format, plus, product
from tests.oracles.quantization import nearest_even
from tests.support.operator_calls import run, tensor
from tests.vector_cases import load
from tests.vector_cases.conversion import floats

PREFIX = "torch.quantized_decomposed."
SPECIAL = [0.0, -0.0, 0.5, 1.5, 2.5, -7.25, 40.3, math.nan, math.inf, -math.inf, 1e-40, 3e9, -3e9, 1e30]
BOUNDS = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-(2**15), 2**15 - 1), "int32": (-(2**31), 2**31 - 1)}
ELEMENTS = {"uint8": "ui8", "int8": "i8", "int16": "i16", "int32": "i32"}


def step(x: float, scale: float, to: Format) -> float:
    """x times the reciprocal of the scale."""
    return product(x, to.round(1 / Fraction(scale)), to)


def stored(x: float, scale: float, z: float, lowest: int, highest: int, to: Format) -> int:
    """sat(RNE((x * (1/s)) + z)), and the cast of a processor of what int32 does not hold."""
    total = plus(step(x, scale, to), to.round(Fraction(z)), to)
    if math.isnan(total):
        return -(2**31) if highest > 2**15 else 0
    whole = total if math.isinf(total) else nearest_even(Fraction(total))
    kept = min(max(whole, to.round(Fraction(lowest))), to.round(Fraction(highest)))
    return int(kept) if kept < 2**31 else -(2**31)


def real(q: int, scale: float, z: float, index: str, to: Format, out: str) -> float:
    difference = Fraction(q) - Fraction(z)
    if index == "i32":
        difference = Fraction((int(difference) + 2**31) % 2**32 - 2**31)
    if index == "f32":
        difference = Fraction(F32.round(Fraction(F32.round(Fraction(q))) - Fraction(z)))
    found = F32.round(Fraction(to.round(Fraction(to.round(difference)) * Fraction(scale))))
    return found if out == "f32" else FORMATS[out].round(Fraction(found))


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(("scale", "to"), [("f32", F32), ("f64", F64)])
@pytest.mark.parametrize("index", ["i32", "i64", "f32"])
def test_rows(dtype: str, scale: str, to: Format, index: str) -> None:
    """Tokens and groups, every element."""
    rng = np.random.default_rng(5)
    lowest, highest = BOUNDS[dtype]
    x = np.stack([rng.permutation(np.array(SPECIAL, np.float32)) for _ in range(6)])
    scales = np.array([1.0, 0.1, 0.0237, 3.0, 7e-5, 1e-40], np.float32 if scale == "f32" else np.float64)[:, None]
    points = np.array([0, 3, -7, 100, 2**31 - 1, 1]).reshape(6, 1) + (0.5 if index == "f32" else 0)
    points = points.astype(np.float32) if index == "f32" else points
    attributes: dict[str, Any] = {"dtype": dtype, "quant_min": lowest, "quant_max": highest}
    parameters = {"scales": tensor(scale, scales), "zero_points": tensor(index, points)}
    expected = [
        [stored(float(each), float(s[0]), float(z[0]), lowest, highest, to) for each in row]
        for row, s, z in zip(x, scales, points, strict=True)
    ]
    found = run(f"{PREFIX}quantize_per_token", {"input": tensor("f32", x), **parameters}, attributes)["output"]
    assert found.tolist() == expected

    groups = dict(parameters)
    finite = np.where(np.isnan(x), np.float32(2), x).reshape(2, 42)
    found = run(
        f"{PREFIX}quantize_per_channel_group",
        {"input": tensor("f32", finite), **groups},
        {**attributes, "group_size": 14},
    )["output"]
    kept = [[stored(2.0, float(scales[i, 0]), float(points[i, 0]), lowest, highest, to) if math.isnan(x[i, j])
             else expected[i][j] for j in range(14)] for i in range(6)]  # fmt: skip
    assert found.reshape(6, 14).tolist() == kept

    q = rng.integers(lowest, highest + 1, (6, 8))
    q[:, 0], q[:, 1] = lowest, highest
    for out, name in (("f32", "float32"), ("f16", "float16")):
        reals = [
            [real(int(each), float(s[0]), float(z[0]), index, to, out) for each in row]
            for row, s, z in zip(q, scales, points, strict=True)
        ]
        back = {**attributes, "output_dtype": name}
        inputs = {"input": tensor(ELEMENTS[dtype], q), **parameters}
        found = run(f"{PREFIX}dequantize_per_token", inputs, back)["output"]
        assert found.astype(np.float64).tolist() == reals
        inputs["input"] = tensor(ELEMENTS[dtype], q.reshape(2, 24))
        found = run(f"{PREFIX}dequantize_per_channel_group", inputs, {**back, "group_size": 8})["output"]
        assert found.astype(np.float64).reshape(6, 8).tolist() == reals


def test_groups_without_zero_points_and_larger_than_a_row() -> None:
    q, scales = tensor("i8", [[1, -2], [3, 4]]), tensor("f32", [[0.5], [2.0]])
    attributes: dict[str, Any] = {"dtype": "int8", "quant_min": -8, "quant_max": 7}
    found = run(f"{PREFIX}dequantize_per_channel_group", {"input": q, "scales": scales}, attributes)["output"]
    assert found.tolist() == [[0.5, -1.0], [6.0, 8.0]]


def test_fake_quant_per_channel() -> None:
    """Nothing becomes an integer: NaN stays, and zero points may be outside of the bounds."""
    scales, points = [0.1, 3.0, 1e-40], [5, 500, -3]
    x = np.array([SPECIAL] * 3, np.float32)
    inputs = {"input": tensor("f32", x), "scales": tensor("f32", scales), "zero_points": tensor("i64", points)}
    found = run(f"{PREFIX}fake_quant_per_channel", inputs, {"axis": 0, "quant_min": -8, "quant_max": 7})["output"]
    for row, s, z in zip(range(3), np.array(scales, np.float32).tolist(), points, strict=True):
        for given, ours in zip(x[row].tolist(), found[row].tolist(), strict=True):
            value = step(given, s, F32)
            if math.isnan(value):
                assert math.isnan(ours)
                continue
            total = plus(value if math.isinf(value) else float(nearest_even(Fraction(value))), float(z), F32)
            assert ours == F32.round(Fraction(int(min(max(total, -8), 7)) - z) * Fraction(s)), (given, s, z)


def test_bounds_as_tensors() -> None:
    x, one = tensor("f32", [0.5, 90.0, -3.0]), {"scale": tensor("f64", 0.5), "zero_point": tensor("i64", [3])}
    bounds = {"quant_min": tensor("i64", 1), "quant_max": tensor("i32", [20])}
    found = run(f"{PREFIX}quantize_per_tensor.tensor2", {"input": x, **one, **bounds}, {"dtype": "uint8"})["output"]
    assert found.tolist() == [4, 20, 1]
    q = {"input": tensor("ui8", [4, 20, 1]), **one, **bounds}
    found = run(f"{PREFIX}dequantize_per_tensor.tensor2", q, {"dtype": "uint8"})["output"]
    assert found.tolist() == [0.5, 8.5, -1.0]


@pytest.mark.parametrize("case", load("choose_qparams")["torch_decomposed"])
def test_choose_qparams(case: Any) -> None:
    ends = floats([case["min"], case["max"]])
    attributes = {"quant_min": case["qmin"], "quant_max": case["qmax"], "eps": 2.0**-23, "dtype": "int8"}
    found = run(f"{PREFIX}{case['op']}", {"input": tensor("f32", ends)}, attributes)
    assert (found["scale"].tolist(), found["zero_point"].tolist()) == ([float.fromhex(case["scale_f64"])], [case["zp"]])


def test_choose_qparams_per_token() -> None:
    rng = np.random.default_rng(6)
    x = (rng.normal(rng.choice([0, 3, -3], (40, 1)), 1, (40, 5)) * 10.0 ** rng.integers(-8, 8, (40, 1))).astype("f4")
    x[0] = 0
    for symmetric, name in ((True, "choose_qparams_per_token"), (False, "choose_qparams_per_token_asymmetric")):
        found = run(f"{PREFIX}{name}", {"input": tensor("f32", x.reshape(8, 5, 5))}, {"dtype": "int8"})
        expected = [range_oracle.torch_per_token(float(row.min()), float(row.max()), symmetric=symmetric) for row in x]
        assert found["scale"].shape == found["zero_point"].shape == (8, 5, 1)
        assert found["scale"].dtype == (np.float32 if symmetric else np.float64)
        assert list(zip(found["scale"].ravel(), found["zero_point"].ravel(), strict=True)) == expected
    nothing = run(f"{PREFIX}{name}", {"input": tensor("f32", np.empty((0, 3)))}, {"dtype": "int8"})
    assert nothing["scale"].shape == (0, 1)


def test_casts() -> None:
    def cast(element: str, values: Any, dtype: str) -> Any:
        found = run(f"{PREFIX}convert_element_type.no_fuse", {"input": tensor(element, values)}, {"dtype": dtype})
        return found["output"].tolist()

    assert cast("f32", [1.75, -1.75, -0.5, 127.9, -128.9], "int8") == [1, -1, 0, 127, -128]
    assert cast("i32", [300, -1, 2**31 - 1], "uint8") == [44, 255, 255]
    # 1 + 2^-11 + 2^-30 rounds to 1 + 2^-11 in f32, and that is a tie in f16.
    assert cast("f64", [1 + 2.0**-11 + 2.0**-30], "float16") == [1.0]
    assert cast("i64", [2**53 + 1], "float64") == [2.0**53]
    with pytest.raises(TensorDataError):
        cast("f32", [1.0, 128.0], "int8")
    with pytest.raises(TensorDataError):
        cast("f64", [2.0**63], "int64")
    with pytest.raises(TensorDataError):
        cast("f32", [math.nan], "int32")


X = {"input": tensor("f32", [[0.5, 1.0], [2.0, 3.0]])}
ROWS = {"scales": tensor("f32", [[0.5], [1.0]]), "zero_points": tensor("i64", [[1], [2]])}
FLAT = {"scales": tensor("f32", [0.5, 1.0]), "zero_points": tensor("i64", [1, 2])}
INT8: dict[str, Any] = {"dtype": "int8", "quant_min": -128, "quant_max": 127}
RANGE: dict[str, Any] = {**INT8, "eps": 1e-5}
HUGE = {"input": tensor("f32", [[3e38, -3e38]])}
ONE = {"scale": tensor("f32", 1.0), "zero_point": tensor("i64", 0), "quant_min": tensor("i64", 0)}


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "error", "pointer"),
    [
        ("quantize_per_token", {**X, **FLAT}, INT8, TypeFitError, "/inputs/scales"),
        ("quantize_per_token", {**X, **ROWS, "input": tensor("f32", 1.0)}, INT8, TypeFitError, "/inputs/input"),
        ("quantize_per_token", {**X, **ROWS, "scales": tensor("f32", [[1], [0]])}, INT8, ParameterError,
         "/inputs/scales"),
        ("quantize_per_token", {**X, **ROWS, "zero_points": tensor("f32", [[1], [math.nan]])}, INT8, ParameterError,
         "/inputs/zero_points"),
        ("quantize_per_token", {**X, **ROWS}, {**INT8, "quant_max": 128}, ParameterError, "/attributes/quant_max"),
        ("dequantize_per_token", {**ROWS, "input": tensor("ui8", [[1], [2]])}, INT8, ParameterError,
         "/attributes/dtype"),
        ("quantize_per_channel_group", {**X, **ROWS}, {**INT8, "group_size": 1}, ParameterError,
         "/attributes/group_size"),
        ("quantize_per_channel_group", {**X, **FLAT}, {**INT8, "group_size": 3}, ParameterError,
         "/attributes/group_size"),
        ("quantize_per_channel_group", {**FLAT, "input": tensor("f32", [1.0, 2.0])}, {**INT8, "group_size": 2},
         TypeFitError, "/inputs/input"),
        ("quantize_per_channel_group", {**FLAT, "input": tensor("f32", np.ones((2, 4)))}, {**INT8, "group_size": 2},
         TypeFitError, "/inputs/scales"),
        ("quantize_per_channel_group", {**ROWS, "input": tensor("f32", [[1, 2], [3, math.nan]])},
         {**INT8, "group_size": 2}, TensorDataError, "/inputs/input"),
        ("fake_quant_per_channel", {**X, **FLAT}, {"axis": 2, "quant_min": 0, "quant_max": 9}, ParameterError,
         "/attributes/axis"),
        ("fake_quant_per_channel", {**X, **FLAT}, {"axis": 0, "quant_min": 9, "quant_max": 0}, ParameterError,
         "/attributes/quant_min"),
        ("fake_quant_per_channel", {**X, **FLAT, "zero_points": tensor("i64", [0, 1 << 31])},
         {"axis": 0, "quant_min": 0, "quant_max": 9}, ParameterError, "/inputs/zero_points"),
        ("fake_quant_per_channel", {**X, **FLAT, "scales": tensor("f64", [1.0, 1e60])},
         {"axis": 0, "quant_min": 0, "quant_max": 9}, ParameterError, "/inputs/scales"),
        ("choose_qparams.tensor", {"input": tensor("f32", [])}, RANGE, TypeFitError, "/inputs/input"),
        ("choose_qparams.tensor", X, {**RANGE, "quant_min": 5}, ParameterError, "/attributes/quant_min"),
        ("choose_qparams.tensor", X, {**RANGE, "eps": 0.0}, ParameterError, "/attributes/eps"),
        ("choose_qparams.tensor", X, {**RANGE, "eps": 1e60}, ParameterError, "/attributes/eps"),
        ("choose_qparams.tensor", {"input": tensor("f32", [math.nan])}, RANGE, ParameterError, "/inputs/input"),
        ("choose_qparams.tensor", HUGE, RANGE, PreconditionError, "/inputs/input"),
        ("choose_qparams_per_token", {"input": tensor("f32", 1.0)}, {"dtype": "int8"}, TypeFitError, "/inputs/input"),
        ("choose_qparams_per_token", {"input": tensor("bf16", [1])}, {"dtype": "int8"}, UnsupportedError,
         "/inputs/input"),
        ("quantize_per_tensor.tensor2", {**X, **ONE, "quant_max": tensor("i64", 128)}, {"dtype": "int8"},
         ParameterError, "/inputs/quant_max"),
        ("quantize_per_tensor.tensor2", {**X, **ONE, "quant_max": tensor("i64", [1, 2])}, {"dtype": "int8"},
         TypeFitError, "/inputs/quant_max"),
    ],
)  # fmt: skip
def test_what_is_refused(operator: str, inputs: Any, attributes: Any, error: type[RequantError], pointer: str) -> None:
    with pytest.raises(error) as caught:
        run(f"{PREFIX}{operator}", inputs, attributes)
    assert caught.value.pointer == pointer
