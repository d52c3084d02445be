"""MXFP4 of DeepSeek-V4: all codes with all scales equal exact fractions, in every dtype."""

from __future__ import annotations

import numpy as np
import pytest

from requant.checkpoint.weights.floats import bits_of
from requant.checkpoint.weights.mxfp4 import DEEPSEEK, Mxfp4
from requant.checkpoint.weights.weight_format import Extremes, PlainRows, StoredRows, StoredTensor
from requant.errors import CheckpointError
from tests.oracles import mxfp4 as oracle
from tests.support.stored_weights import dequantized

DTYPES = ("BF16", "F16", "F32")
SHAPE = (256, 64)
"""A row for each byte of a scale, with all codes in order in the first group, and in another order in the second."""
CODES = np.concatenate([np.arange(32) % 16, np.arange(32) * 7 % 16]).astype(np.uint8)


def all_codes() -> np.ndarray:
    """Return the bytes of the rows, the first code of each in its lower half."""
    return np.tile(CODES[::2] | CODES[1::2] << 4, (256, 1))


def expected(dtype: str, largest: str) -> np.ndarray:
    numbers = [[oracle.value(int(code), byte, dtype.lower(), largest=largest) for code in CODES] for byte in range(256)]
    with np.errstate(over="ignore"):
        return bits_of(np.array(numbers, np.float32), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("scale_dtype", "largest"), [("F8_E8M0", "NaN"), ("U8", "infinity")])
def test_all_codes_with_all_scales(scale_dtype: str, largest: str, dtype: str) -> None:
    form = Mxfp4(DEEPSEEK, scale_dtype)
    described = {each.suffix: (each.dtype, each.shape) for each in form.stored(dtype, SHAPE)}
    assert described == {"weight": ("I8", (256, 32)), "scale": (scale_dtype, (256, 2))}
    scales = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 2, axis=1)
    found = {"weight": all_codes().view(np.int8), "scale": scales}
    for rows in (1, 17, 256):
        restored = dequantized(form, found, described, dtype, SHAPE, rows)
        np.testing.assert_array_equal(restored, expected(dtype, largest))


def test_codes_and_scales() -> None:
    form = Mxfp4(DEEPSEEK, "F8_E8M0")
    parts = {"weight": all_codes().view(np.int8), "scale": np.repeat(np.arange(256, dtype=np.uint8)[:, None], 2, 1)}
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


def test_it_is_only_read() -> None:
    rows = PlainRows(np.zeros((4, 32), np.uint16), "BF16", (4, 32), 0)
    with pytest.raises(CheckpointError, match="only read; choose a scheme"):
        Mxfp4(DEEPSEEK, "U8").quantized(rows, Extremes(0, 0))
