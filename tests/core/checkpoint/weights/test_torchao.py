"""Weights in torchao's tensors equal the exact oracle: all codes with all scales, whatever the pieces are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from requant.checkpoint.weights.torchao import (
    QDATA,
    SCALE,
    TENSOR_SCALE,
    ZERO_POINT,
    Float8TensorWeight,
    Int8TensorWeight,
    MxTensorWeight,
    Nvfp4TensorWeight,
)
from requant.checkpoint.weights.weight_format import StoredRows, StoredTensor
from requant.errors import CheckpointError
from tests.core.checkpoint.weights.test_reading import assert_values
from tests.oracles import reading as oracle
from tests.oracles.profiles import Format

SPECIAL = [1.0, -1.5, 0.0, -0.0, 0.1, 2.0**-149, 2.0**-130, 3e-39, 1e38, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize(("element", "name"), [("F8_E4M3", "f8E4M3FN"), ("F8_E5M2", "f8E5M2")])
@pytest.mark.parametrize("grid", [(1, 1), (24, 1), (8, 4), (1, 256), (4, 1)])
def test_float8(grid: tuple[int, int], element: str, name: str) -> None:
    """One scale, one of each row, of blocks, of columns."""
    codes = np.tile(np.arange(256, dtype=np.uint8), (24, 1))
    scales = np.resize(np.array(SPECIAL, np.float32), grid)
    found: dict[str, np.ndarray] = {QDATA: codes, SCALE: scales}

    def value(row: int, column: int, to: Format) -> float:
        scale = float(scales[row // (24 // grid[0]), column // (256 // grid[1])])
        return oracle.product(oracle.small_float(name, column), scale, oracle.F32)

    assert_values(Float8TensorWeight(grid, element), found, (24, 256), value)


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("zero_points", [True, False])
def test_integers(zero_points: bool, dtype: str) -> None:
    """All codes with all zero points."""
    codes = np.tile(np.arange(256, dtype=np.uint8).view(np.int8), (256, 1))
    zeros = np.arange(256, dtype=np.uint8).view(np.int8)[:, None]
    to_scale = oracle.BY_NAME[dtype]
    numbers = [oracle.cast(SPECIAL[row % len(SPECIAL)], to_scale) for row in range(256)]
    bits = np.array(numbers, np.float32)
    if dtype == "F16":
        stored: np.ndarray = bits.astype(np.float16).view(np.uint16)
    else:
        stored = bits if dtype == "F32" else (bits.view(np.uint32) >> 16).astype(np.uint16)
    found = {QDATA: codes, SCALE: stored[:, None], **({ZERO_POINT: zeros} if zero_points else {})}
    form = Int8TensorWeight((256, 1), dtype_of_scales=dtype, has_zero_points=zero_points)

    def value(row: int, column: int, to: Format) -> float:
        difference = int(codes[row, column]) - (int(zeros[row, 0]) if zero_points else 0)
        return oracle.product(float(difference), numbers[row], oracle.F32)

    assert_values(form, found, (256, 256), value)
    described = {SCALE: dtype}
    found_codes = form.codes(StoredRows(found, described, (256, 256), 0, 256))
    assert (found_codes.lowest, found_codes.highest, found_codes.uniform) == (-128, 127, True)


def swizzled(scales: np.ndarray, filler: int) -> np.ndarray:
    """Scales in tiles, each at the place that cuBLAS's documents give for it."""
    rows, columns = scales.shape
    tiles = -(-rows // 128), -(-columns // 4)
    flat = np.full(tiles[0] * tiles[1] * 512, filler, scales.dtype)
    for row in range(rows):
        for column in range(columns):
            tile = row // 128 * tiles[1] + column // 4
            flat[tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4] = scales[row, column]
    return flat.reshape(tiles[0] * 32, tiles[1] * 16)


MX = {
    "float8_e4m3fn": ("f8E4M3FN", 256),
    "float8_e5m2": ("f8E5M2", 256),
    "fp6_e2m3": ("f6E2M3FN", 64),
    "fp6_e3m2": ("f6E3M2FN", 64),
    "float4_e2m1fn_x2": ("f4E2M1FN", 16),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("in_tiles", [False, True])
@pytest.mark.parametrize("element", MX)
def test_mx(element: str, in_tiles: bool) -> None:
    """All scale bytes with all codes, and 5 columns of scales, which are no whole tiles."""
    name, count = MX[element]
    width = 64 if count == 256 else 16
    codes = np.resize(np.arange(count), (256, 5 * width)).astype(np.uint8)
    codes = np.stack([np.roll(row, at * 7) for at, row in enumerate(codes)])
    scales = (np.arange(256)[:, None] + np.arange(5) * 50).astype(np.uint8)
    found = {
        QDATA: codes[:, ::2] | codes[:, 1::2] << 4 if count == 16 else codes,
        SCALE: swizzled(scales, 255) if in_tiles else scales,
    }

    def value(row: int, column: int, to: Format) -> float:
        scale = oracle.cast(oracle.e8m0(int(scales[row, column // width]), nan=True), to)
        return oracle.product(oracle.small_float(name, int(codes[row, column])), scale, to)

    assert_values(MxTensorWeight((256, 5), width, in_tiles, element), found, codes.shape, value)


@pytest.mark.sample(2)
@pytest.mark.parametrize("in_tiles", [False, True])
@pytest.mark.parametrize("whole", [None, 1.0, 1.7e-3, -3e38, math.nan, 1e-42, 0.0])
def test_nvfp4(whole: float | None, in_tiles: bool) -> None:
    """All scale bytes, NaN among them, with all codes."""
    codes = np.resize(np.arange(16), (256, 48)).astype(np.uint8)
    scales = (np.arange(256)[:, None] + np.arange(3) * 77).astype(np.uint8)
    found = {QDATA: codes[:, ::2] | codes[:, 1::2] << 4, SCALE: swizzled(scales, 0) if in_tiles else scales}
    tensor_scale = 1.0 if whole is None else float(np.float32(whole))
    if whole is not None:
        found[TENSOR_SCALE] = np.array([[whole]], np.float32)

    def value(row: int, column: int, to: Format) -> float:
        scale = oracle.small_float("f8E4M3FN", int(scales[row, column // 16]))
        if whole is not None:
            scale = oracle.product(scale, tensor_scale, oracle.F32)
        return oracle.product(oracle.small_float("f4E2M1FN", int(codes[row, column])), scale, oracle.F32)

    form = Nvfp4TensorWeight((256, 3), 16, in_tiles, has_tensor_scale=whole is not None)
    assert_values(form, found, (256, 48), value)


def tensors(*each: tuple[str, str, tuple[int, ...]]) -> dict[str, StoredTensor]:
    return {suffix: StoredTensor(suffix, dtype, shape) for suffix, dtype, shape in each}


@pytest.mark.parametrize(
    ("form", "stored", "message"),
    [
        (Float8TensorWeight(), tensors((QDATA, "F8_E4M3", (2, 4, 4)), (SCALE, "F32", (2, 1, 1))), "two dimensions"),
        (Float8TensorWeight(), tensors((QDATA, "F8_E4M3", (4, 4)), (SCALE, "F32", (4,))), "no matrix"),
        (Float8TensorWeight(), tensors((QDATA, "F8_E4M3", (4, 4)), (SCALE, "F32", (3, 1))), "blocks of the same size"),
        (Float8TensorWeight(), tensors((QDATA, "F8_E4M3", (4, 4)), (SCALE, "F32", (8, 1))), "blocks of the same size"),
        (Int8TensorWeight(block=(1, 3)), tensors((QDATA, "I8", (4, 4))), "no whole blocks of .1, 3."),
        (Int8TensorWeight(block=(10**30, 1)), tensors((QDATA, "I8", (4, 4))), "no whole blocks"),
        (MxTensorWeight(), tensors((QDATA, "F8_E4M3", (4, 48))), "no whole blocks of 32"),
        (Nvfp4TensorWeight(), tensors((QDATA, "U8", (4, 4))), "no whole blocks of 16"),
    ],
)
def test_blocks_that_do_not_fit(form: Any, stored: dict[str, StoredTensor], message: str) -> None:
    def resolved() -> None:
        weight_format, shape = form.resolve_from_stored(stored, None)
        weight_format.stored("BF16", shape)

    with pytest.raises(CheckpointError, match=message):
        resolved()
