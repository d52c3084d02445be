"""MXFP4 of DeepSeek-V4 and gpt-oss: all codes with all scales equal exact fractions, in every dtype."""

from __future__ import annotations

import numpy as np
import pytest

from requant.checkpoint.weights.blocks import Extremes
from requant.checkpoint.weights.floats import bits_of, values
from requant.checkpoint.weights.mxfp4 import DEEPSEEK, GPT_OSS, Mxfp4, Mxfp4Experts
from requant.checkpoint.weights.transposed import FLOATS, TransposedFloats
from requant.checkpoint.weights.weight_format import PlainRows, StoredRows, StoredTensor
from requant.errors import CheckpointError
from tests.oracles import mxfp4 as oracle
from tests.support.stored_weights import dequantized

DTYPES = ("BF16", "F16", "F32")
SHAPE = (256, 64)
"""A row for each byte of a scale, with all codes in order in the first group, and in another order in the second."""
CODES = np.concatenate([np.arange(32) % 16, np.arange(32) * 7 % 16]).astype(np.uint8)
SCALES = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 2, axis=1)


E2M1_BY_PLACE = np.array([-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def all_codes() -> np.ndarray:
    """Return the bytes of the rows, the first code of each in its lower half."""
    return np.tile(CODES[::2] | CODES[1::2] << 4, (256, 1))


def expected(dtype: str, largest: str) -> np.ndarray:
    numbers = [[oracle.value(int(code), byte, dtype.lower(), largest=largest) for code in CODES] for byte in range(256)]
    with np.errstate(over="ignore"):
        return bits_of(np.array(numbers, np.float32), dtype)


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("scale_dtype", "largest"), [("F8_E8M0", "NaN"), ("U8", "infinity")])
def test_all_codes_with_all_scales(scale_dtype: str, largest: str, dtype: str) -> None:
    form = Mxfp4(DEEPSEEK, scale_dtype)
    described = {each.suffix: (each.dtype, each.shape) for each in form.stored(dtype, SHAPE)}
    assert described == {"weight": ("I8", (256, 32)), "scale": (scale_dtype, (256, 2))}
    found = {"weight": all_codes().view(np.int8), "scale": SCALES}
    for rows in (1, 17, 256):
        restored = dequantized(form, found, described, dtype, SHAPE, rows)
        np.testing.assert_array_equal(restored, expected(dtype, largest))


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_codes_with_all_scales_of_gpt_oss(dtype: str) -> None:
    """Where 255 is 2^128, and 0 times that is 0. Every second row is the weight's, and every other one another's."""
    found = {"blocks": all_codes(), "scales": SCALES}
    every = expected(dtype, "2^128")
    for first, step in ((0, 1), (0, 2), (1, 2)):
        form, shape = Mxfp4(GPT_OSS, "U8", first, step), (256 // step, 64)
        described = {each.suffix: (each.dtype, each.shape) for each in form.stored(dtype, shape)}
        assert described == {"blocks": ("U8", (256, 32)), "scales": ("U8", (256, 2))}
        for rows in (1, 13, 256):
            restored = dequantized(form, found, described, dtype, shape, rows)
            np.testing.assert_array_equal(restored, every[first::step])


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [True, False])
def test_experts(transposed: bool, dtype: str) -> None:
    """The 256 rows are those of 2 experts. Pieces are whole groups, and of one expert where it is transposed."""
    found = {"blocks": all_codes(), "scales": SCALES}
    tensors = {
        "blocks": StoredTensor("blocks", "U8", (2, 128, 2, 16)),
        "scales": StoredTensor("scales", "U8", (2, 128, 2)),
    }
    form, shape = Mxfp4Experts(transposed).resolve_from_stored(tensors, None)
    assert shape == ((128, 128) if transposed else (256, 64))
    assert form.tensor_shape(shape) == ((2, 64, 128) if transposed else (2, 128, 64))
    assert form.tensor_name("a.experts.gate_up_proj") == "a.experts.gate_up_proj"
    stored = {each.suffix: each for each in form.stored(dtype, shape)}
    assert {suffix: each.shape for suffix, each in stored.items()} == {
        suffix: each.shape for suffix, each in tensors.items()
    }
    assert {suffix: each.matrix for suffix, each in stored.items()} == {
        suffix: array.shape for suffix, array in found.items()
    }
    every = expected(dtype, "2^128")
    numbers = np.concatenate([every[:128].T, every[128:].T]) if transposed else every
    described = {suffix: (each.dtype, each.shape) for suffix, each in stored.items()}
    assert (form.rows_together, form.rows_within) == ((32, 64) if transposed else (1, 0))
    for rows in (32, 64) if transposed else (1, 13, 256):
        np.testing.assert_array_equal(dequantized(form, found, described, dtype, shape, rows), numbers)


def same_numbers(found: np.ndarray, expected: np.ndarray) -> None:
    """Signs of zeros count, and those of NaN do not."""
    np.testing.assert_array_equal(found, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]))


def exact(largest: str) -> np.ndarray:
    """Return what the rows of all codes and all scales hold, before a dtype rounds it."""
    numbers = [[oracle.number(int(code), byte, largest=largest) for code in CODES] for byte in range(256)]
    return np.array(numbers)


@pytest.mark.parametrize(("scale_dtype", "largest"), [("F8_E8M0", "NaN"), ("U8", "infinity")])
def test_numbers(scale_dtype: str, largest: str) -> None:
    """Half of the smallest scale, and six times the largest, are no f16 and no f32: they are not rounded."""
    form = Mxfp4(DEEPSEEK, scale_dtype)
    found = {"weight": all_codes().view(np.int8), "scale": SCALES}
    same_numbers(form.numbers(StoredRows.whole(found, form.stored("BF16", SHAPE), SHAPE)), exact(largest))


def test_numbers_of_gpt_oss() -> None:
    found, every = {"blocks": all_codes(), "scales": SCALES}, exact("2^128")
    for first, step in ((0, 1), (0, 2), (1, 2)):
        form, shape = Mxfp4(GPT_OSS, "U8", first, step), (256 // step, 64)
        numbers = form.numbers(StoredRows.whole(found, form.stored("BF16", shape), shape))
        same_numbers(numbers, every[first::step])
    for transposed, expected in ((False, every), (True, every.T)):
        experts = Mxfp4Experts(transposed, 1, 256, 64)
        stored = StoredRows.whole(found, experts.stored("BF16", expected.shape), expected.shape)
        same_numbers(experts.numbers(stored), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_floats_that_lie_across(dtype: str) -> None:
    bits = bits_of(np.random.default_rng(3).standard_normal((48, 20), np.float32), dtype)
    for first, step, vector in ((0, 1, False), (1, 2, False), (0, 2, True)):
        lying = bits[:1] if vector else bits
        form, shape = TransposedFloats(dtype, first, step, vector), (20 // step, len(lying))
        stored = StoredRows.whole({FLOATS: lying}, form.stored(dtype, shape), shape)
        expected = np.ascontiguousarray(lying[:, first::step].T)
        np.testing.assert_array_equal(form.dequantize(stored, dtype), expected)
        np.testing.assert_array_equal(form.dequantize(stored, "F32"), bits_of(values(expected, dtype), "F32"))
        np.testing.assert_array_equal(form.numbers(stored), values(expected, dtype).astype(np.float64))
        for codes in (form.codes, form.scaled_codes):
            with pytest.raises(CheckpointError, match="plain floats have no codes"):
                codes(stored)


def test_codes_of_experts() -> None:
    scales = np.arange(256, dtype=np.uint8).reshape(128, 2)
    parts = {"blocks": all_codes()[:128], "scales": scales}
    for transposed in (True, False):
        form = Mxfp4Experts(transposed, 1, 128, 64)
        shape = (64, 128) if transposed else (128, 64)
        codes = form.codes(StoredRows(parts, {"blocks": "U8", "scales": "U8"}, shape, 0, shape[0]))
        width = shape[1] // codes.scales.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = E2M1_BY_PLACE[codes.codes + 7] * np.repeat(codes.scales, width, axis=1)
        values = form.dequantize(StoredRows(parts, {"blocks": "U8", "scales": "U8"}, shape, 0, shape[0]), "F32")
        known = np.isfinite(numbers)
        np.testing.assert_array_equal(numbers[known], values[known])


def test_codes_and_scales() -> None:
    form = Mxfp4(DEEPSEEK, "F8_E8M0")
    parts = {"weight": all_codes().view(np.int8), "scale": SCALES}
    codes = form.codes(StoredRows.whole(parts, form.stored("BF16", SHAPE), SHAPE))
    assert (codes.lowest, codes.highest, codes.uniform) == (-7, 7, False)
    np.testing.assert_array_equal(codes.codes[0], np.where(CODES & 8, -(CODES & 7).astype(np.int16), CODES & 7))
    np.testing.assert_array_equal(codes.scales[:255, 0], np.ldexp(np.float32(1), np.arange(255) - 127))
    assert np.isnan(codes.scales[255]).all()


def test_what_is_not_whole_groups_is_refused() -> None:
    form = Mxfp4(DEEPSEEK, "F8_E8M0")
    tensors = {"weight": StoredTensor("weight", "I8", (4, 24)), "scale": StoredTensor("scale", "F32", (4, 2))}
    with pytest.raises(CheckpointError, match="scale of E2M1 codes is F32; expected one of F8_E8M0, U8"):
        form.resolve_from_stored(tensors, None)
    with pytest.raises(CheckpointError, match="in groups of 32"):
        form.stored("BF16", (4, 48))


@pytest.mark.parametrize("shape", [(2, 128, 2, 8), (2, 128, 32), (0, 128, 2, 16), (16,)])
def test_blocks_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    tensors = {"blocks": StoredTensor("blocks", "U8", shape)}
    with pytest.raises(CheckpointError, match=r"expected \[experts, out, in / 32, 16\]"):
        Mxfp4Experts(True).resolve_from_stored(tensors, None)


def test_it_is_only_read() -> None:
    rows = PlainRows(np.zeros((4, 32), np.uint16), "BF16", (4, 32), 0)
    with pytest.raises(CheckpointError, match="only read; choose a scheme"):
        Mxfp4(DEEPSEEK, "U8").quantized(rows, Extremes(0, 0))
