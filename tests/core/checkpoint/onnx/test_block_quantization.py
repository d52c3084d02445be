"""The arithmetic of onnxruntime's block quantizer: its own bytes, an oracle, what is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from requant.checkpoint.onnx.block_quantization import (
    FORM_NAMES,
    DequantizeLinearRange,
    MatMulNBitsColumns,
    Operator,
    WeightForm,
    form_named,
    quantize_columns,
)
from requant.checkpoint.weights import floats
from requant.errors import ParameterError, PreconditionError, UnknownNameError
from tests.oracles.onnx_blocks import quantize_block

Array = NDArray[Any]

CASES = json.loads((Path(__file__).parents[3] / "vectors" / "onnx_nbits.json").read_text())["cases"]


def decoded(tensor: dict[str, Any]) -> Array:
    return np.frombuffer(base64.b64decode(tensor["data"]), tensor["dtype"]).reshape(tensor["shape"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['op']}-{case['bits']}-{case['symmetric']}")
def test_onnxruntime_writes_the_same_bytes(case: dict[str, Any]) -> None:
    weight = decoded(case["weight"])
    k, n = case["weight"]["shape"]
    form = WeightForm(Operator(case["op"]), case["bits"], case["block_size"], case["symmetric"])
    packed: MatMulNBitsColumns | DequantizeLinearRange
    if form.operator is Operator.MATMUL_NBITS:
        packed = MatMulNBitsColumns(k, n, "F32", form)
    else:
        packed = DequantizeLinearRange(k, n, "F32", form, transposed=False)
    # In two parts, each with whole blocks.
    half = case["block_size"]
    packed.put(quantize_columns(weight[:half], "F32", form), 0, 0)
    packed.put(quantize_columns(weight[half:, :5], "F32", form), half, 0)
    packed.put(quantize_columns(weight[half:, 5:], "F32", form), half, 5)
    out = case["out"]
    assert packed.codes.tobytes() == base64.b64decode((out.get("B") or out["x"])["data"])
    assert packed.scales.tobytes() == base64.b64decode(out["scales"]["data"])
    if not form.symmetric:
        assert packed.zero_points.tobytes() == base64.b64decode(out["zero_points"]["data"])


ELEMENTS = st.one_of(
    st.integers(-60, 60).map(lambda n: n / 16),
    st.floats(-3, 3, width=16).filter(lambda x: x == 0 or abs(x) > 0.0001),
    st.sampled_from([0.0, -0.0, 1.875, -2.0, 15.0, -15.0]),
)


def half(scale: float) -> float:
    return float(np.float16(scale))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("name", FORM_NAMES)
@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@given(column=st.lists(ELEMENTS, min_size=1, max_size=40))
def test_the_oracle_agrees(name: str, dtype: str, symmetric: bool, column: list[float]) -> None:
    form = form_named(name, block_size=16, symmetric=symmetric)
    weights = floats.rounded(np.array(column, "<f4"), dtype).reshape(-1, 1)
    found = quantize_columns(np.concatenate([weights, weights[::-1]], axis=1), dtype, form)
    for block in range(form.blocks(len(column))):
        part = slice(16 * block, 16 * block + 16)
        expected = quantize_block(
            [float(x) for x in weights[part, 0]],
            form.bits,
            symmetric=symmetric,
            rounded_before_zero_point=form.operator is Operator.DEQUANTIZE_LINEAR,
            scale_of_codes=half if dtype == "F16" else float,
        )
        assert found.codes[part, 0].tolist() == expected.codes
        assert found.zero_points[block, 0] == expected.zero_point
        stored = floats.values(found.scales[block, :1], dtype)
        assert np.array_equal(stored, floats.rounded(np.array([expected.scale], "<f4"), dtype))


def test_a_tie_tells_the_forms_apart() -> None:
    weights = np.zeros((16, 1), "<f4")
    weights[:4, 0] = [-8, 7, 0.5, -0.5]
    codes = {
        name: quantize_columns(weights, "F32", form_named(name, block_size=16, symmetric=True)).codes[:4, 0].tolist()
        for name in ("MatMulNBits4", "DequantizeLinear4")
    }
    assert codes == {"MatMulNBits4": [0, 15, 9, 8], "DequantizeLinear4": [0, 15, 9, 7]}


def test_of_a_block_of_zeros_the_first_gives_the_sign() -> None:
    weights = np.array([[0.0, -0.0], [-0.0, 0.0]], "<f4")
    found = quantize_columns(weights, "F32", form_named("MatMulNBits4", symmetric=True))
    assert np.signbit(found.scales).tolist() == [[True, False]]
    assert found.codes.tolist() == [[8, 8], [8, 8]]


def test_a_scale_that_underflows_in_f16_makes_zeros() -> None:
    weights = np.array([[2.0**-24], [-(2.0**-24)]], "<f4")
    found = quantize_columns(weights, "F16", form_named("MatMulNBits8"))
    assert (found.scales[0, 0], found.zero_points[0, 0], found.codes[:, 0].tolist()) == (0, 127, [127, 127])


@pytest.mark.parametrize("name", FORM_NAMES)
@pytest.mark.parametrize(
    ("value", "dtype", "index"),
    [
        (np.nan, "F32", 61),
        (-np.inf, "F16", 61),
        (np.float32(1e-42), "F32", 49),  # the reciprocal of the scale
        (np.float32(3.4e38), "F32", 49),  # max - min
    ],
)
def test_what_cannot_be_quantized_is_refused(name: str, value: float, dtype: str, index: int) -> None:
    weights = np.zeros((36, 3), "<f4")
    weights[20, 1] = value
    if abs(value) > 1e38 and np.isfinite(value):
        weights[21, 1] = -value
    with pytest.raises(PreconditionError) as error:
        quantize_columns(weights, dtype, form_named(name, block_size=16))
    assert error.value.index == index


def test_forms_that_onnxruntime_does_not_write_are_refused() -> None:
    with pytest.raises(ParameterError, match="4 bits, not of 8"):
        WeightForm(Operator.DEQUANTIZE_LINEAR, 8)
    with pytest.raises(ParameterError, match="4 or 8 bits, not of 2"):
        WeightForm(Operator.MATMUL_NBITS, 2)
    with pytest.raises(ParameterError, match="block size 48"):
        form_named("MatMulNBits4", block_size=48)
    with pytest.raises(UnknownNameError, match="MatMulNBits4"):
        form_named("MatMulNbits")
    assert {form_named(name).profile for name in FORM_NAMES} == {
        "onnxruntime-matmulnbits",
        "onnxruntime-dequantizelinear",
    }
