"""NVFP4 against the oracle: scales of two levels and of one, given and derived."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from requant.convert.blocks.nvfp4 import BLOCK, GlobalScale, Nvfp4Tensor, dequantize_nvfp4, quantize_nvfp4
from requant.errors import ParameterError, PreconditionError, TensorDataError, TypeFitError, UnsupportedError
from tests.oracles import blocks as oracle
from tests.oracles.quantization import f32
from tests.oracles.small_floats import value_of
from tests.support import cases

GIVEN = (1.0, 0.0123, 3.7, 2.0**-143, 2.0**119, 1e-30, 1e30)


def sample(magnitude: float) -> np.ndarray:
    """Blocks over six decades below `magnitude`, of halves and quarters that tie, of zeros and subnormals."""
    rng = np.random.default_rng(7)
    wide = rng.standard_normal((150, BLOCK)) * 10.0 ** rng.uniform(-6, 0, (150, 1))
    ties = rng.integers(-24, 25, (100, BLOCK)) / 4 * 2.0 ** rng.integers(-6, 1, (100, 1))
    ties[:, 0] = 6
    zeros = np.zeros((3, BLOCK))
    zeros[1], zeros[2, 4] = -0.0, 1e-40 / magnitude
    with np.errstate(over="ignore", under="ignore"):
        x = (np.concatenate([wide, ties, zeros]) * magnitude).astype("<f4")
    finite: np.ndarray = x[np.isfinite(x).all(1)]
    return finite


def assert_blocks(x: np.ndarray, tensor: Nvfp4Tensor, global_scale: float) -> None:
    # The last are zeros and subnormals.
    for index in (*cases.sample(range(len(x) - 3), 60), *range(len(x) - 3, len(x))):
        block = x[index].tolist()
        expected = oracle.quantize_nvfp4(block, global_scale)
        got = (int(tensor.scales[index]), tensor.elements[index * BLOCK : (index + 1) * BLOCK].tolist())
        assert got == expected, f"block {index}: {block}"


@pytest.mark.parametrize("magnitude", [1.0, 1e4, 1e-4, 1e30, 1e-30, 2.0**-120])
def test_a_derived_scale(magnitude: float) -> None:
    x = sample(magnitude)
    tensor = quantize_nvfp4(x)
    expected = oracle.global_scale_of([float(v) for v in x.reshape(-1)])
    assert tensor.global_scale == expected
    assert_blocks(x, tensor, expected)


@pytest.mark.parametrize("global_scale", GIVEN)
def test_a_given_scale(global_scale: float) -> None:
    scale = f32(Fraction(global_scale))
    x = np.concatenate([sample(scale), sample(min(scale * 2000, 1e37)), sample(1.0)])
    tensor = quantize_nvfp4(x, global_scale)
    assert tensor.global_scale == scale
    assert_blocks(x, tensor, scale)


@pytest.mark.parametrize("magnitude", [0.01, 1.0, 1000.0, 1e6])
def test_one_level(magnitude: float) -> None:
    x = sample(magnitude)
    tensor = quantize_nvfp4(x, GlobalScale.ABSENT)
    assert tensor.global_scale is None
    assert_blocks(x, tensor, 1.0)


def test_nan_and_infinity() -> None:
    x = np.ones((4, BLOCK), "<f4")
    x[0, 3], x[1, 3], x[2, 3], x[2, 4] = np.nan, np.inf, -np.inf, -np.nan
    tensor = quantize_nvfp4(x, GlobalScale.ABSENT)
    assert_blocks(x, tensor, 1.0)
    values = dequantize_nvfp4(tensor)
    assert np.isnan(values[[0, 2]]).all()
    assert values[1, 3] == 448 * 6
    with pytest.raises(PreconditionError, match="not finite") as caught:
        quantize_nvfp4(x)
    assert caught.value.index == 3


@pytest.mark.parametrize("global_scale", [None, 1.0, 0.0123, 1e30, 2.0**-143])
def test_every_scale_and_element_is_dequantized(global_scale: float | None) -> None:
    scales = np.arange(256, dtype="|u1")
    elements = np.tile(np.arange(16, dtype="|u1"), 256)
    got = dequantize_nvfp4(Nvfp4Tensor((256, BLOCK), global_scale, scales, elements))
    factor = Fraction(1 if global_scale is None else f32(Fraction(global_scale)))
    for code in range(127):
        real = value_of("f8E4M3FN", code)
        assert isinstance(real, Fraction)
        scale = Fraction(f32(real * factor))
        for element in range(8):
            magnitude = value_of("f4E2M1FN", element)
            assert isinstance(magnitude, Fraction)
            expected = f32(magnitude * scale)
            assert (float(got[code, element]), float(got[code, element + 8])) == (expected, -expected)
            assert np.signbit(got[code, element + 8])
            assert got[code + 128, element] == -expected
    assert np.isnan(got[[127, 255]]).all()


def test_what_is_refused() -> None:
    with pytest.raises(TypeFitError, match="24 is not a multiple of 16"):
        quantize_nvfp4(np.zeros((16, 24), "<f4"))
    with pytest.raises(UnsupportedError, match="float16"):
        quantize_nvfp4(np.zeros(16, "<f2"))
    for zero in (np.zeros(16, "<f4"), np.full(16, 1e-42, "<f4"), np.empty((3, 0), "<f4")):
        with pytest.raises(PreconditionError, match="too small"):
            quantize_nvfp4(zero)
    for scale in (0.0, -1.0, float("nan"), float("inf"), 1e300, 2.0**-149, 2.0**120):
        with pytest.raises(ParameterError):
            quantize_nvfp4(np.ones(16, "<f4"), scale)
    one = np.zeros(1, "|u1")
    with pytest.raises(TensorDataError, match="scales"):
        dequantize_nvfp4(Nvfp4Tensor((32,), None, one, np.zeros(32, "|u1")))
    with pytest.raises(TensorDataError, match="index 0"):
        dequantize_nvfp4(Nvfp4Tensor((16,), None, one, np.full(16, 16, "|u1")))
