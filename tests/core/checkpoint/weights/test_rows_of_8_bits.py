"""LLM.int8 of bitsandbytes and fbgemm's fp8 equal an exact oracle: every code, hostile scales, pieces of any size."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from requant.checkpoint.quantization_config.methods import METHODS
from requant.checkpoint.weights.floats import bits_of, values
from requant.checkpoint.weights.llm_int8 import LlmInt8
from requant.checkpoint.weights.weight_format import PlainRows, StoredRows, StoredTensor, WeightFormat
from requant.errors import CheckpointError
from tests.oracles.model_optimizer import DTYPES, F32, e4m3, product, rounded
from tests.support.stored_weights import dequantized

HOSTILE = np.array(
    [0x7FC00000, 0x7F800000, 0xFF800000, 0, 0x80000000, 1, 0x00400000, 0x7F7FFFFF, 0xBF800000, 0x3F800001, 0x47800000],
    np.uint32,
).view(np.float32)
CODES = np.arange(256, dtype=np.uint8).view(np.int8)
# f32 of the decimal number that bitsandbytes multiplies by: 1/127, rounded.
RECIPROCAL = F32.round(Fraction("0.007874015718698502"))


def scales(count: int) -> np.ndarray:
    random = np.random.default_rng(0)
    rest = random.uniform(0.5, 2, count) * 2.0 ** random.integers(-140, 120, count)
    return np.append(HOSTILE, rest.astype(np.float32))


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("states_order", [True, False])
def test_all_codes(states_order: bool, dtype: str) -> None:
    of_rows = scales(30)
    shape = (len(of_rows), 256)
    found = {"weight": np.tile(CODES, (shape[0], 1)), "SCB": of_rows[None]}
    if states_order:
        found["weight_format"] = np.zeros((1, 1), np.uint8)
    tensors = {name: StoredTensor(name, "", array.shape) for name, array in found.items()}
    form, resolved = LlmInt8().resolve_from_stored(tensors, None)
    assert (form, resolved) == (LlmInt8(states_order), shape)
    described = {each.suffix: (each.dtype, each.shape) for each in form.stored("BF16", shape)}
    expected = [
        [rounded(product(product(float(code), float(scale)), RECIPROCAL), DTYPES[dtype]) for code in CODES]
        for scale in of_rows
    ]
    same(form, found, described, dtype, expected)


def same(
    form: WeightFormat,
    found: Mapping[str, np.ndarray],
    described: Mapping[str, Any],
    dtype: str,
    exact: list[list[float]],
) -> None:
    """Equal bits, but for those of NaN, whatever the pieces are."""
    shape = len(exact), len(exact[0])
    first, *others = (dequantized(form, found, described, dtype, shape, rows) for rows in (shape[0], 1, 7))
    for other in others:
        np.testing.assert_array_equal(other, first)
    expected = np.array(exact, np.float32)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(values(first, dtype)), nan)
    integers = np.uint32 if dtype == "F32" else np.uint16
    np.testing.assert_array_equal(first.view(integers)[~nan], bits_of(expected, dtype).view(integers)[~nan])


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_codes_of_fbgemm(dtype: str) -> None:
    of_rows = scales(30)
    form = METHODS["fbgemm_fp8"]({"quant_method": "fbgemm_fp8"})
    stored = form.stored("F32", (len(of_rows), 256))
    assert [(each.suffix, each.dtype, each.shape) for each in stored] == [
        ("weight", "F8_E4M3", (len(of_rows), 256)),
        ("weight_scale", "F32", (len(of_rows), 1)),
    ]
    found = {"weight": np.tile(CODES.view(np.uint8), (len(of_rows), 1)), "weight_scale": of_rows[:, None]}
    expected = [[rounded(product(e4m3(code), float(scale)), DTYPES[dtype]) for code in range(256)] for scale in of_rows]
    same(form, found, {each.suffix: (each.dtype, each.shape) for each in stored}, dtype, expected)


def rows_of(order: int) -> StoredRows:
    parts: dict[str, np.ndarray] = {
        "weight": np.array([[-127, 0, 5]], np.int8),
        "SCB": np.array([[2.54]], np.float32),
        "weight_format": np.array([[order]], np.uint8),
    }
    return StoredRows(parts, {"weight": "I8", "SCB": "F32", "weight_format": "U8"}, (1, 3), 0, 1)


def test_codes_and_scales_for_comparisons() -> None:
    found = LlmInt8(states_order=True).codes(rows_of(0))
    assert (found.lowest, found.highest, found.uniform) == (-127, 127, True)
    weight = LlmInt8(states_order=True).dequantize(rows_of(0), "F32")
    np.testing.assert_allclose(found.codes * found.scales, weight, rtol=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3, 255])
def test_orders_of_tensor_cores_are_refused(order: int) -> None:
    with pytest.raises(
        CheckpointError, match=rf"weight_format is {order}, an order .*; expected 0: save the model again"
    ):
        LlmInt8(states_order=True).dequantize(rows_of(order), "F32")


def test_it_is_read_only() -> None:
    with pytest.raises(CheckpointError, match="LlmInt8 is only read; choose a scheme"):
        LlmInt8().quantized(PlainRows(np.zeros((1, 3), np.uint16), "BF16", (1, 3), 0), None)
