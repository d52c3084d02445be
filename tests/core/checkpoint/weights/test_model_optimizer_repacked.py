"""Codes and scales move between ModelOpt's formats and those of compressed-tensors, and hold the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest

from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.weights.blocks import Extremes
from requant.checkpoint.weights.floats import bits_of
from requant.checkpoint.weights.model_optimizer import FloatGroups, ModelOptimizerWeight
from requant.checkpoint.weights.repack import Inexact, SourceNumbers, compare_numbers
from requant.checkpoint.weights.weight_format import StoredRows, WeightFormat
from requant.errors import CheckpointError
from tests.oracles import model_optimizer as oracle
from tests.support.stored_weights import matrix

Parts = Mapping[str, np.ndarray]
BYTES = np.arange(256, dtype=np.uint8)


def form(name: str) -> WeightFormat:
    scheme = scheme_named(name)
    return scheme.format(scheme.profiles[0])


THEIRS, OURS = form("NVFP4A16"), form("MODELOPT_W4A16_NVFP4")


def rows_of(described: WeightFormat, parts: Parts, shape: tuple[int, int], dtype: str = "F32") -> StoredRows:
    return StoredRows.whole(parts, described.stored(dtype, shape), shape)


def moved(
    source: WeightFormat,
    target: WeightFormat,
    parts: Parts,
    shape: tuple[int, int],
    extremes: Extremes | None = None,
    dtype: str = "F32",
) -> tuple[dict[str, np.ndarray], Inexact | None]:
    """The parts of the target, and where its numbers differ from those of the source."""
    stored = rows_of(source, parts, shape, dtype)
    numbers = SourceNumbers(source.scaled_codes(stored), source.numbers(stored))
    found = dict(target.repacked(numbers, shape, 0, dtype, extremes))
    tensors = {each.suffix: each for each in target.stored(dtype, shape)}
    assert {suffix: array.shape for suffix, array in found.items()} == {
        suffix: matrix(each.shape) for suffix, each in tensors.items()
    }
    return found, compare_numbers(source.numbers(stored), target.numbers(rows_of(target, found, shape, dtype)))


def nibbles(shape: tuple[int, int], highest: int, seed: int = 0) -> np.ndarray:
    """Codes of E2M1 up to `highest`, of both signs; -0 is left out, which ModelOpt reads as 0."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, highest + 1, shape, np.uint8)
    codes[:, ::16] = highest
    codes |= np.where(codes > 0, random.integers(0, 2, shape, np.uint8) << 3, 0).astype(np.uint8)
    packed: np.ndarray = codes[:, ::2] | codes[:, 1::2] << 4
    return packed


# With the sign; neither NaN nor 0.
SCALES = np.concatenate([BYTES[1:0x7F], BYTES[0x81:0xFF]])[:, None]


@pytest.mark.parametrize("exponent", [-20, -13, 0, 5])
@pytest.mark.parametrize("highest", range(1, 8))
def test_powers_of_two_are_exact_both_ways(highest: int, exponent: int) -> None:
    """All scales, whatever the largest code of a group is. From 4 on codes and positive scales stay byte for byte."""
    shape = (len(SCALES), 16)
    second = np.array([[2.0**exponent]], np.float32)
    parts: Parts = {"weight": nibbles(shape, highest), "weight_scale": SCALES, "weight_scale_2": second}
    there, unlike = moved(OURS, THEIRS, parts, shape)
    assert unlike is None
    assert there["weight_global_scale"] == 1 / second
    back, unlike = moved(THEIRS, OURS, there, shape)
    assert unlike is None
    assert back["weight_scale_2"] == second
    if highest >= 6:
        positive = SCALES[:, 0] < 0x80
        for suffix, array in parts.items():
            rows = positive if len(array) > 1 else [True]
            np.testing.assert_array_equal(back[suffix][rows], array[rows], suffix)
        np.testing.assert_array_equal(there["weight_packed"][positive], parts["weight"][positive])


def held(second: float, other: float) -> bool:
    """Whether the products and the quotients with all significands of a scale are the same in f32."""
    for eighths in range(8, 16):
        product = oracle.F32.round(Fraction(eighths) * Fraction(second))
        quotient = oracle.F32.round(Fraction(eighths) / Fraction(other))
        if product != quotient:
            return False
    return True


def test_other_scales_are_held_where_the_libraries_compute_the_same() -> None:
    """The reciprocal is the nearest f32; the numbers are compared as the libraries compute them."""
    scales = np.arange(0x38, 0x40, dtype=np.uint8)[:, None]
    shape = (8, 16)
    codes = nibbles(shape, 7)
    random = np.random.default_rng(1)
    verdicts = []
    for second in random.uniform(1, 2, 60).astype(np.float32):
        whole = np.float32(oracle.F32.round(1 / Fraction(float(second))))
        parts: Parts = {"weight": codes, "weight_scale": scales, "weight_scale_2": np.array([[second]], np.float32)}
        there, unlike = moved(OURS, THEIRS, parts, shape)
        assert there["weight_global_scale"] == whole
        assert (unlike is None) == held(float(second), float(whole))
        verdicts.append(unlike is None)
        # The codes are the same ones, held or not.
        np.testing.assert_array_equal(there["weight_packed"], codes)
        np.testing.assert_array_equal(there["weight_scale"], scales)
        theirs: Parts = {"weight_packed": codes, "weight_scale": scales, "weight_global_scale": parts["weight_scale_2"]}
        back, unlike = moved(THEIRS, OURS, theirs, shape)
        assert back["weight_scale_2"] == whole
        assert (unlike is None) == held(float(whole), float(second))
        np.testing.assert_array_equal(back["weight"], codes)
        np.testing.assert_array_equal(back["weight_scale"], scales)
        verdicts.append(unlike is None)
    assert {True, False} == set(verdicts)


def test_the_code_of_minus_0_is_0() -> None:
    parts: Parts = {
        "weight": np.full((1, 8), 0x88, np.uint8),
        "weight_scale": np.array([[0x38]], np.uint8),
        "weight_scale_2": np.array([[0.5]], np.float32),
    }
    there, unlike = moved(OURS, THEIRS, parts, (1, 16))
    assert unlike is None
    assert not there["weight_packed"].any()


@pytest.mark.parametrize("target", ["MODELOPT_FP8_PER_CHANNEL_PER_TOKEN", "MODELOPT_FP8_PB_WO"])
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_fp8_of_compressed_tensors_is_held(target: str, dtype: str) -> None:
    """Scales in the dtype of the weight become f32."""
    theirs = form("FP8_DYNAMIC" if "CHANNEL" in target else "FP8_BLOCK")
    random = np.random.default_rng(2)
    shape = (140, 200)
    tensors = {each.suffix: each for each in theirs.stored(dtype, shape)}
    codes = random.integers(0, 0x7F, shape, np.uint8) | random.integers(0, 2, shape, np.uint8) << 7
    codes[:, 0] = codes[:, 150] = 0x7E
    scales = random.uniform(1e-3, 1, tensors["weight_scale"].shape).astype(np.float32)
    parts: Parts = {"weight": codes, "weight_scale": bits_of(scales, dtype)}
    found, unlike = moved(theirs, form(target), parts, shape, dtype=dtype)
    assert unlike is None
    np.testing.assert_array_equal(found["weight"], codes)


def test_powers_of_two_without_a_scale_of_the_whole() -> None:
    """From MXFP4, whose groups have 32: a scale of the whole is made of the extremes."""
    theirs = form("MXFP4A16")
    shape = (9, 64)
    powers = np.repeat(np.arange(116, 125, dtype=np.uint8)[:, None], 2, axis=1)
    extremes = Extremes(-6 * 2.0**-3, 6 * 2.0**-3)
    source: Parts = {"weight_packed": nibbles(shape, 7), "weight_scale": powers}
    found, unlike = moved(theirs, OURS, source, shape, extremes)
    assert unlike is None
    assert found["weight_scale_2"] == 2.0**-11
    with pytest.raises(ValueError, match="needs the extremes"):
        moved(theirs, OURS, source, shape)


def test_groups_without_a_scale() -> None:
    """Zeros keep the scale that they have, and one of 0 becomes the smallest."""
    parts: Parts = {
        "weight_packed": np.zeros((2, 8), np.uint8),
        "weight_scale": np.array([[0x38], [0]], np.uint8),
        "weight_global_scale": np.array([[4]], np.float32),
    }
    found, unlike = moved(THEIRS, OURS, parts, (2, 16))
    assert unlike is None
    assert found["weight_scale"].tolist() == [[0x38], [1]]


def test_a_scale_for_each_column() -> None:
    """`pre_quant_scale` is a part of the numbers: powers of two that other groups have, and others."""
    described = ModelOptimizerWeight(FloatGroups(4, 16, "F8_E4M3"), "F32")
    parts: Parts = {
        "weight": nibbles((4, 32), 7),
        "weight_scale": np.full((4, 2), 0x40, np.uint8),
        "weight_scale_2": np.array([[0.25]], np.float32),
        "pre_quant_scale": np.array([[0.5] * 16 + [2.0] * 16], np.float32),
    }
    assert moved(described, THEIRS, parts, (4, 32))[1] is None
    factors = np.random.default_rng(3).uniform(0.5, 2, (1, 32)).astype(np.float32)
    stored = rows_of(described, {**parts, "pre_quant_scale": factors}, (4, 32))
    codes = parts["weight"]
    expected = [
        [
            float(Fraction(oracle.e2m1(int(codes[i, j // 2]) >> 4 * (j % 2) & 15)) / 2 * Fraction(float(factors[0, j])))
            for j in range(32)
        ]
        for i in range(4)
    ]
    np.testing.assert_array_equal(described.numbers(stored), expected)
    assert moved(described, THEIRS, {**parts, "pre_quant_scale": factors}, (4, 32))[1] is not None


def test_what_is_read_only_is_no_target() -> None:
    parts: Parts = {
        "weight": np.zeros((2, 16), np.uint8),
        "weight_scale": np.full((2, 2), 0x38, np.uint8),
        "weight_scale_2": np.ones((1, 1), np.float32),
    }
    with pytest.raises(CheckpointError, match="quantize instead"):
        moved(OURS, ModelOptimizerWeight(FloatGroups(8, 32, "U8")), parts, (2, 32))
