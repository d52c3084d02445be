"""Weights of AMD Quark equal the exact oracle: all codes with all scales or zero points, whatever the pieces are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from requant.checkpoint.weights.quark import (
    PER_BLOCK,
    PER_CHANNEL,
    PER_GROUP,
    PER_TENSOR,
    POWERS_OF_TWO,
    SCALE,
    SECOND_SCALE,
    TWO_LEVELS,
    WEIGHT,
    ZERO_POINT,
    QuarkWeight,
)
from requant.checkpoint.weights.weight_format import StoredRows
from tests.core.checkpoint.weights.test_reading import assert_values, packed_bits
from tests.oracles import reading as oracle
from tests.oracles.profiles import Format

SPECIAL = [1.0, -1.5, 0.0, -0.0, 0.1, 2.0**-149, 2.0**-130, 3e-39, 1e38, math.inf, -math.inf, math.nan]
EIGHT = [0, 2, 4, 6, 1, 3, 5, 7]


def special(shape: tuple[int, int], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Scales as they are stored, and as numbers."""
    to = oracle.BY_NAME[dtype]
    flat = [oracle.cast(SPECIAL[at % len(SPECIAL)], to) for at in range(shape[0] * shape[1])]
    numbers = np.array(flat).reshape(shape)
    exact = numbers.astype(np.float32)
    if dtype == "F16":
        return exact.astype(np.float16).view(np.uint16), numbers
    return exact if dtype == "F32" else (exact.view(np.uint32) >> 16).astype(np.uint16), numbers


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
@pytest.mark.parametrize(("codes_dtype", "name"), [("fp8_e4m3", "f8E4M3FN"), ("fp8_e5m2", "f8E5M2")])
@pytest.mark.parametrize(
    ("scheme", "block", "grid"),
    [(PER_TENSOR, (1, 1), (1, 1)), (PER_CHANNEL, (1, 1), (24, 1)), (PER_BLOCK, (8, 64), (3, 4))],
)
def test_fp8(
    scheme: str, block: tuple[int, int], grid: tuple[int, int], codes_dtype: str, name: str, dtype: str
) -> None:
    codes = np.tile(np.arange(256, dtype=np.uint8), (24, 1))
    stored, numbers = special(grid, dtype)

    def value(row: int, column: int, to: Format) -> float:
        scale = float(numbers[row // (24 // grid[0]), column // (256 // grid[1])])
        return oracle.product(oracle.small_float(name, column), scale, oracle.F32)

    form = QuarkWeight(codes_dtype, scheme, block, scale_dtype=dtype)
    assert_values(form, {WEIGHT: codes, SCALE: stored}, (24, 256), value)


@pytest.mark.parametrize(
    ("dtype", "name", "bits"), [("fp4", "f4E2M1FN", 4), ("fp6_e2m3", "f6E2M3FN", 6), ("fp6_e3m2", "f6E3M2FN", 6)]
)
def test_powers_of_two(dtype: str, name: str, bits: int) -> None:
    """All codes with all bytes, of which 255 is infinite."""
    codes = np.tile(np.arange(1 << bits), (256, 32 >> min(bits, 5)))
    codes = np.tile(codes, (1, 3 if codes.shape[1] == 32 else 1))
    scales = np.tile(np.arange(256, dtype=np.uint8)[:, None], (1, codes.shape[1] // 32))

    def value(row: int, column: int, to: Format) -> float:
        scale = oracle.e8m0(row, nan=False) if row < 255 else math.inf
        return oracle.product(oracle.small_float(name, int(codes[row, column])), scale, oracle.F32)

    form = QuarkWeight(dtype, PER_GROUP, (1, 32), POWERS_OF_TWO, scale_dtype="U8")
    shape = (256, codes.shape[1])
    assert_values(form, {WEIGHT: packed_bits(codes, bits), SCALE: scales}, shape, value)


@pytest.mark.parametrize("second", [1.0, 1.7e-3, 3e38, 1e-42, 0.0, math.nan])
def test_two_levels(second: float) -> None:
    codes = np.tile(np.arange(16), (256, 2))
    scales = np.tile(np.arange(256, dtype=np.uint8)[:, None], (1, 2))
    found = {WEIGHT: packed_bits(codes, 4), SCALE: scales, SECOND_SCALE: np.array([[second]], np.float32)}

    def value(row: int, column: int, to: Format) -> float:
        scale = oracle.product(oracle.small_float("f8E4M3FN", row), float(np.float32(second)), oracle.F32)
        return oracle.product(oracle.small_float("f4E2M1FN", int(codes[row, column])), scale, oracle.F32)

    form = QuarkWeight("fp4", PER_GROUP, (1, 16), TWO_LEVELS, scale_dtype="F8_E4M3")
    assert_values(form, found, (256, 32), value)


def integer(code: int, bits: int, *, signed: bool) -> int:
    return code - (1 << bits) if signed and code >= 1 << (bits - 1) else code


def words(codes: np.ndarray, *, reordered: bool) -> np.ndarray:
    """Words of eight codes along rows, filled up with zeros."""
    whole = np.zeros((codes.shape[0], -(-codes.shape[1] // 8) * 8), np.int64)
    whole[:, : codes.shape[1]] = codes
    by_word = whole.reshape(len(codes), -1, 8)
    order = EIGHT if reordered else range(8)
    shifted = np.stack([by_word[:, :, at] << 4 * i for i, at in enumerate(order)])
    found: np.ndarray = shifted.sum(0).astype(np.uint32).view(np.int32)
    return found


@pytest.mark.sample(5)
@pytest.mark.parametrize("zero_points", [True, False])
@pytest.mark.parametrize("scheme", [PER_TENSOR, PER_CHANNEL, PER_GROUP])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int4", "uint4"])
@pytest.mark.parametrize("reordered", [True, False])
def test_integers(reordered: bool, dtype: str, scheme: str, zero_points: bool) -> None:
    """Rows that are no whole words, where words have something of eight."""
    bits, signed = int(dtype[-1]), dtype.startswith("i")
    out, columns, group = (36, 256, 64) if bits == 8 else (37, 64, 16)
    grid = {PER_TENSOR: (1, 1), PER_CHANNEL: (out, 1), PER_GROUP: (out, columns // group)}[scheme]
    codes = (np.arange(columns) + 7 * np.arange(out)[:, None]) % (1 << bits)
    zeros = (np.arange(grid[0] * grid[1]).reshape(grid) * 11 + 3) % (1 << bits)
    stored, numbers = special(grid, "BF16")
    transposed = scheme == PER_GROUP
    as_dtype = np.int8 if signed else np.uint8

    def laid(array: np.ndarray) -> np.ndarray:
        array = array.T if transposed else array
        if bits == 8:
            return np.ascontiguousarray(array.astype(np.uint8)).view(as_dtype)
        return words(array, reordered=reordered)

    found = {WEIGHT: laid(codes), SCALE: np.ascontiguousarray(stored.T) if transposed else stored}
    if zero_points:
        if bits == 4 and scheme == PER_TENSOR:
            found[ZERO_POINT] = np.array([[integer(int(zeros[0, 0]), 4, signed=signed)]], np.int32)
        elif bits == 4 and scheme == PER_CHANNEL:
            found[ZERO_POINT] = words(zeros.T, reordered=reordered).T
        else:
            found[ZERO_POINT] = laid(zeros)

    def value(row: int, column: int, to: Format) -> float:
        place = row * grid[0] // out, column * grid[1] // columns
        zero = integer(int(zeros[place]), bits, signed=signed) if zero_points else 0
        difference = integer(int(codes[row, column]), bits, signed=signed) - zero
        return oracle.product(float(difference), float(numbers[place]), oracle.F32)

    form = QuarkWeight(dtype, scheme, (1, group), reordered=reordered, scale_dtype="BF16", has_zero_points=zero_points)
    assert_values(form, found, (out, columns), value)
    described = {SCALE: "BF16"}
    found_codes = form.codes(StoredRows(found, described, (out, columns), 0, out))
    assert found_codes.uniform
    assert (found_codes.lowest, found_codes.highest) == (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    )
    assert found_codes.codes[5, 9] == integer(int(codes[5, 9]), bits, signed=signed)
