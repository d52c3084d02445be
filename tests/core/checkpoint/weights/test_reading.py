"""What is read equals the exact oracle: all codes with all scales, whatever the pieces are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
import pytest

from requant.checkpoint.weights.auto_round import AutoRoundMx, AutoRoundNvfp4
from requant.checkpoint.weights.block_scaled import MxWeight, Nvfp4Weight
from requant.checkpoint.weights.compressed_tensors import IntegerWeight, IntQuantized, PackQuantized, groups_of
from requant.checkpoint.weights.floats import bits_of
from requant.checkpoint.weights.weight_format import StoredRows, WeightFormat
from requant.errors import CheckpointError
from tests.oracles import reading as oracle
from tests.oracles.profiles import Format
from tests.support.stored_weights import dequantized, quantized

DTYPES = ("BF16", "F16", "F32")
Value = Callable[[int, int, Format], float]


def restored(form: WeightFormat, found: Mapping[str, np.ndarray], dtype: str, shape: tuple[int, int]) -> np.ndarray:
    """The bits of a weight, of which every way to cut it into pieces makes the same."""
    described = {each.suffix: (each.dtype, each.shape) for each in form.stored("BF16", shape)}
    whole = -(-shape[0] // form.rows_together) * form.rows_together
    first, *others = (dequantized(form, found, described, dtype, shape, rows) for rows in (form.rows_together, whole))
    for other in others:
        np.testing.assert_array_equal(other, first)
    return first


def assert_values(
    form: WeightFormat,
    found: Mapping[str, np.ndarray],
    shape: tuple[int, int],
    value: Value,
    *,
    are_products: bool = True,
) -> None:
    """Compare all elements, as bits. `value`: by row, column and the dtype of the weight, before it is cast to that.

    `are_products`: in F32 the values are the numbers that are stored, rounded once.
    """
    for dtype in DTYPES:
        to = oracle.BY_NAME[dtype]
        exact = [[oracle.cast(value(row, column, to), to) for column in range(shape[1])] for row in range(shape[0])]
        expected = bits_of(np.array(exact, np.float32), dtype)
        np.testing.assert_array_equal(restored(form, found, dtype, shape), expected, dtype)
    if are_products:
        with np.errstate(over="ignore"):
            numbers = form.numbers(StoredRows.whole(found, form.stored("BF16", shape), shape)).astype(np.float32)
        np.testing.assert_array_equal(bits_of(numbers, "F32").view(np.uint32), expected.view(np.uint32))


def packed_bits(codes: np.ndarray, bits: int) -> np.ndarray:
    """The bytes of rows of codes, each in the lowest bits that are left."""
    planes = (codes[..., None] >> np.arange(bits)) & 1
    return np.packbits(planes.reshape(len(codes), -1).astype(np.uint8), axis=1, bitorder="little")


def test_mxfp6() -> None:
    """All codes with all scale bytes, of which 255 is infinite in the BF16 of scales."""
    codes = np.tile(np.arange(64), (256, 1))
    codes[1::2] = np.random.default_rng(0).integers(0, 64, (128, 64))
    scales = np.tile(np.arange(256, dtype=np.uint8)[:, None], (1, 2))
    found = {"weight_packed": packed_bits(codes, 6), "weight_scale": scales}

    def value(row: int, column: int, to: Format) -> float:
        code = oracle.small_float("f6E2M3FN", int(codes[row, column]))
        scale = oracle.cast(oracle.e8m0(row, nan=False), oracle.BF16)
        return oracle.product(code, scale, oracle.BF16)

    form = MxWeight(6, rounds=True)
    assert_values(form, found, (256, 64), value)
    places = form.codes(StoredRows(found, {}, (256, 64), 0, 256))
    assert (places.lowest, places.highest) == (-31, 31)
    np.testing.assert_array_equal(places.codes[0], [*range(32), *(-each for each in range(32))])


@pytest.mark.parametrize("bits", [4, 8])
def test_mx_of_auto_round(bits: int) -> None:
    """In f32, with all codes and all scale bytes, of which 255 is infinite."""
    codes = np.tile(np.arange(1 << bits, dtype=np.uint8), (256, 2 if bits == 4 else 1))
    scales = np.tile(np.arange(256, dtype=np.uint8)[:, None], (1, codes.shape[1] // 32))
    suffix, stored = ("weight_packed", codes[:, ::2] | codes[:, 1::2] << 4) if bits == 4 else ("weight", codes)
    name = "f4E2M1FN" if bits == 4 else "f8E4M3FN"

    def value(row: int, column: int, to: Format) -> float:
        scale = oracle.e8m0(row, nan=False) if row < 255 else math.inf
        return oracle.product(oracle.small_float(name, int(codes[row, column])), scale, oracle.F32)

    shape = (256, codes.shape[1])
    assert_values(AutoRoundMx(bits), {suffix: stored, "weight_scale": scales}, shape, value)


@pytest.mark.parametrize("whole", [2688.0, 1.7e3, 3e38, 0.0, 1e-42, math.inf, -3.0, math.nan])
def test_nvfp4_of_auto_round(whole: float) -> None:
    """The codes are multiplied with the reciprocal first, of which that of 0 is 0."""
    codes = np.tile(np.arange(16, dtype=np.uint8), (256, 1))
    scales = np.arange(256, dtype=np.uint8)[:, None]
    found = {
        "weight_packed": codes[:, ::2] | codes[:, 1::2] << 4,
        "weight_scale": scales,
        "weight_global_scale": np.array([[whole]], np.float32),
    }
    single = float(np.float32(whole))
    reciprocal = 0.0 if single == 0 or math.isinf(single) else math.nan
    if single and math.isfinite(single):
        exact = 1 / Fraction(single)
        reciprocal = math.inf if exact >= 2**128 else math.copysign(oracle.F32.round(exact), single)

    def value(row: int, column: int, to: Format) -> float:
        code = oracle.product(oracle.small_float("f4E2M1FN", column), reciprocal, oracle.F32)
        return oracle.product(code, oracle.small_float("f8E4M3FN", row), oracle.F32)

    assert_values(AutoRoundNvfp4(), found, (256, 16), value, are_products=False)
    stored = StoredRows(found, {}, (256, 16), 0, 256)
    numbers = AutoRoundNvfp4().numbers(stored)
    if whole:
        np.testing.assert_array_equal(numbers, Nvfp4Weight().numbers(stored))
    else:
        assert not numbers[np.arange(256) % 128 != 127].any()


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("make", [PackQuantized, IntQuantized])
def test_groups_in_the_order_of_activations(make: type[IntegerWeight], symmetric: bool) -> None:
    """Each column has the scale and the zero point of its group."""
    plain = make(groups_of(16), True, symmetric, 4)
    ordered = make(groups_of(16), True, symmetric, 4, ordered=True)
    rng = np.random.default_rng(3)
    shape = (40, 96)
    weight = bits_of(rng.standard_normal(shape, np.float32), "BF16")
    found = quantized(plain, weight, "BF16", plain.rows_together)
    expected = restored(plain, found, "F32", shape)
    # The columns of `plain`, sorted by group, are moved to where they were before.
    g_idx = rng.permutation(np.repeat(np.arange(6), 16)).astype(np.int32)
    order = np.argsort(g_idx, kind="stable")
    if make is IntQuantized:
        codes = np.empty_like(found["weight"])
        codes[:, order] = found["weight"]
        moved = {**found, "weight": codes}
    else:
        bits = np.unpackbits(found["weight_packed"].view(np.uint8), axis=1, bitorder="little").reshape(40, 96, 4)
        codes = np.empty((40, 96), np.int64)
        codes[:, order] = (bits << np.arange(4)).sum(2)
        moved = {**found, "weight_packed": packed_bits(codes, 4).view("<i4")}
    columns = np.empty_like(expected)
    columns[:, order] = expected
    moved["weight_g_idx"] = g_idx[None]
    np.testing.assert_array_equal(restored(ordered, moved, "F32", shape), columns)
    for neighbours in (np.full(96, -1), np.arange(96) // 16):
        same = {**found, "weight_g_idx": neighbours.astype(np.int32)[None]}
        np.testing.assert_array_equal(restored(ordered, same, "F32", shape), expected)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0, 0, 1, 2], "groups 0 to 2, and the weight has 2 groups"),
        ([0, 0, 1, -1], "groups -1 to 1, and the weight has 2 groups"),
        ([0, -(2**31), 1, 2**31 - 1], "groups -2147483648 to 2147483647"),
        ([0, 0, 0, 1], "group 0 3 times; expected each 2 times"),
    ],
)
def test_orders_that_are_none(groups: list[int], message: str) -> None:
    form = IntQuantized(groups_of(2), True, True, 4, ordered=True)
    found: dict[str, np.ndarray] = {
        "weight": np.zeros((1, 4), np.int8),
        "weight_scale": np.ones((1, 2), np.float32),
        "weight_g_idx": np.array([groups], np.int32),
    }
    with pytest.raises(CheckpointError, match=message):
        form.dequantize(StoredRows(found, {"weight_scale": "F32"}, (1, 4), 0, 1), "F32")
    with pytest.raises(CheckpointError, match="only read"):
        form.quantize(np.zeros((1, 4), np.float32), "F32", (1, 4), 0)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [3, 5, 6, 7])
def test_words_with_gaps(bits: int, symmetric: bool) -> None:
    """As compressed-tensors 0.17 and before packed codes that do not fill words."""
    dense, loose = (PackQuantized(groups_of(25), True, symmetric, bits, loose=each) for each in (False, True))
    shape = (43, 200)
    weight = bits_of(np.random.default_rng(bits).standard_normal(shape, np.float32), "BF16")
    found = quantized(dense, weight, "BF16", dense.rows_together)
    expected = restored(dense, found, "F32", shape)

    def repacked(words: np.ndarray, count: int) -> np.ndarray:
        planes = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
        codes = (planes[:, : count * bits].reshape(len(words), count, bits).astype(np.int64) << np.arange(bits)).sum(2)
        each = 32 // bits
        filled = np.zeros((len(words), -(-count // each) * each), np.int64)
        filled[:, :count] = codes
        by_word = filled.reshape(len(words), -1, each) << (np.arange(each) * bits)
        loosely: np.ndarray = by_word.sum(2).astype(np.uint32).view(np.int32)
        return loosely

    moved = {**found, "weight_packed": repacked(found["weight_packed"], shape[1])}
    if not symmetric:
        moved["weight_zero_point"] = repacked(found["weight_zero_point"].T, shape[0]).T
    np.testing.assert_array_equal(restored(loose, moved, "F32", shape), expected)
    tensors = {each.suffix: each for each in loose.stored("BF16", shape)}
    assert dense.resolve_from_stored(tensors, shape) == (loose, shape)
    with pytest.raises(CheckpointError, match="only read"):
        loose.quantize(weight, "BF16", shape, 0)
