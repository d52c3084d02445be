"""NVFP4 against the oracle: scales of two levels and of one, given and derived."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from requant.convert.blocks.block_tensor import BlockFormat, BlockRule, dequantize_blocks, quantize_blocks
from requant.convert.blocks.nvfp4 import (
    BLOCK,
    GlobalScale,
    Nvfp4Rule,
    Nvfp4Tensor,
    dequantize_nvfp4,
    quantize_nvfp4,
)
from requant.errors import ParameterError, PreconditionError, TensorDataError, TypeFitError, UnsupportedError
from tests.oracles import blocks as oracle
from tests.oracles.quantization import f32
from tests.oracles.small_floats import value_of
from tests.support import cases
from tests.support.nvfp4_blocks import hostile_blocks, undecided_blocks

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


LARGEST = (1.0, 3.7, 2688.0, 3.4e38, 1e-30, 2.0**-100 / 3)


def assert_blocks_by(rule: Nvfp4Rule, x: np.ndarray, tensor: Nvfp4Tensor, whole: float) -> None:
    elements = tensor.elements.reshape(-1, BLOCK)
    for index, block in enumerate(x.tolist()):
        got = int(tensor.scales[index]), elements[index].tolist()
        assert got == oracle.quantize_nvfp4_by(rule, block, whole), f"block {index}: {block}"


@pytest.mark.sample(2)
@pytest.mark.parametrize("largest", LARGEST)
@pytest.mark.parametrize("rule", Nvfp4Rule)
def test_rules_of_libraries(rule: Nvfp4Rule, largest: float) -> None:
    """A derived global scale, and given ones: for a tensor smaller or larger than this, so that scales saturate, or
    are subnormal or 0."""
    x = hostile_blocks(np.random.default_rng(9), largest, 2000 if cases.EXHAUSTIVE else 80)
    derived = quantize_nvfp4(x, rule=rule)
    assert derived.global_scale == oracle.global_scale_by(rule, x.ravel().tolist())
    assert_blocks_by(rule, x, derived, derived.global_scale)
    # Of "four over six" it is the largest magnitude itself, or more.
    factors = (1.0, 64.0, 1e4) if rule in oracle.FOUR_OVER_SIX else (1 / 64, 64.0, 1e4)
    for factor in factors if 1e-20 < largest < 1e30 else ():
        whole = f32(Fraction(derived.global_scale * factor))
        some = x[-40:]
        assert_blocks_by(rule, some, quantize_nvfp4(some, whole, rule), whole)


@pytest.mark.sample(1)
@pytest.mark.parametrize("rule", Nvfp4Rule)
def test_many_global_scales_of_libraries(rule: Nvfp4Rule) -> None:
    """Steps of the global scale alone show in few tensors, and there beside the ties of block scales."""
    rng = np.random.default_rng(11)
    for largest in np.exp2(rng.uniform(-20, 20, 60 if cases.EXHAUSTIVE else 30)).tolist():
        x = hostile_blocks(rng, largest, 24)
        tensor = quantize_nvfp4(x, rule=rule)
        assert tensor.global_scale == oracle.global_scale_by(rule, x.ravel().tolist())
        assert_blocks_by(rule, x, tensor, tensor.global_scale)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("rule", "power"), [(Nvfp4Rule.FOUROVERSIX, 2), (Nvfp4Rule.FOUROVERSIX_MAE, 1)])
def test_errors_that_are_nearly_equal(rule: Nvfp4Rule, power: int) -> None:
    """Where the order of the sum decides."""
    x = undecided_blocks(np.random.default_rng(12), 3.7, 8000 if cases.EXHAUSTIVE else 800, power)
    tensor = quantize_nvfp4(x, rule=rule)
    assert_blocks_by(rule, x, tensor, tensor.global_scale or 0.0)


def test_torchao_of_one_level() -> None:
    x = hostile_blocks(np.random.default_rng(10), 2688.0, 2000 if cases.EXHAUSTIVE else 80)
    tensor = quantize_nvfp4(x, GlobalScale.ABSENT, Nvfp4Rule.TORCHAO)
    assert tensor.global_scale is None
    assert_blocks_by(Nvfp4Rule.TORCHAO, x, tensor, 1.0)


@pytest.mark.parametrize("rule", [None, *Nvfp4Rule])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (16,), (2, 3, 48)])
def test_any_shape(rule: Nvfp4Rule | None, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype="<f4").reshape(shape)
    tensor = quantize_nvfp4(values, 1000.0, rule)
    assert tensor.elements.size == values.size
    assert tensor.scales.size == values.size // BLOCK


def test_a_tensor_of_zeros_by_libraries() -> None:
    """Those with a global scale for it; -0 keeps its sign by TransformerEngine alone."""
    zeros = np.zeros(16, "<f4")
    zeros[3] = -0.0
    for rule, scale in ((Nvfp4Rule.COMPRESSED_TENSORS, 0x20), (Nvfp4Rule.TRANSFORMER_ENGINE, 0)):
        tensor = quantize_nvfp4(zeros, rule=rule)
        assert (tensor.global_scale, tensor.scales.tolist()) == (1.0, [scale])
        assert tensor.elements.tolist() == [0, 0, 0, 8 * (scale == 0), *[0] * 12]
    for rule in (Nvfp4Rule.TORCHAO, Nvfp4Rule.MODEL_OPTIMIZER):
        with pytest.raises(PreconditionError, match="too small"):
            quantize_nvfp4(zeros, rule=rule)
    tensor = quantize_nvfp4(zeros, rule=Nvfp4Rule.FOUROVERSIX)
    assert (tensor.global_scale, tensor.scales.tolist()) == (0.0, [0])
    assert not tensor.elements.any()
    assert not dequantize_nvfp4(tensor, Nvfp4Rule.FOUROVERSIX).any()


@pytest.mark.parametrize("rule", [each for each in Nvfp4Rule if each is not Nvfp4Rule.TRANSFORMER_ENGINE])
@pytest.mark.parametrize("whole", [1.0, 0.0123, 1e30])
def test_libraries_dequantize(rule: Nvfp4Rule, whole: float) -> None:
    scales = np.arange(127, dtype="|u1")
    got = dequantize_nvfp4(Nvfp4Tensor((127, BLOCK), whole, scales, np.tile(np.arange(16, dtype="|u1"), 127)), rule)
    for code, values in enumerate(got.tolist()):
        real = value_of("f8E4M3FN", code)
        assert isinstance(real, Fraction)
        expected = [oracle.dequantize_nvfp4_by(rule, each, real, f32(Fraction(whole))) for each in range(16)]
        np.testing.assert_array_equal(np.array(values, "<f4").view("<u4"), np.array(expected, "<f4").view("<u4"))


def test_what_rules_of_libraries_refuse() -> None:
    ones = np.ones(32, "<f4")
    for rule in Nvfp4Rule:
        for bad in (np.nan, -np.inf):
            x = ones.copy()
            x[17] = bad
            with pytest.raises(PreconditionError, match=f"index 17 is not finite, for which rule {rule}") as caught:
                quantize_nvfp4(x, 1.0, rule)
            assert caught.value.index == 17
        # A largest magnitude that is none of the tensor's.
        for scale in (0.0, -1.0, float("nan"), float("inf"), 1e300, *([0.5] if rule in oracle.FOUR_OVER_SIX else [])):
            with pytest.raises(ParameterError, match="cannot use the global scale"):
                quantize_nvfp4(ones, scale, rule)
        if rule is not Nvfp4Rule.TORCHAO:
            with pytest.raises(UnsupportedError, match="always has a global scale"):
                quantize_nvfp4(ones, GlobalScale.ABSENT, rule)
    with pytest.raises(UnsupportedError, match="largest magnitude"):
        dequantize_nvfp4(quantize_nvfp4(ones), Nvfp4Rule.TRANSFORMER_ENGINE)
    for format_, other, known in (
        (BlockFormat.NVFP4, BlockRule.RCEIL, f"nvfp4 has no rule rceil, but {', '.join(('ocp', *Nvfp4Rule))}$"),
        (BlockFormat.MXFP4_E2M1, BlockRule.TORCHAO, "but ocp, tosa, floor, ceil, even, rceil$"),
        (BlockFormat.Q8_0, BlockRule.TORCHAO, "but ocp$"),
    ):
        with pytest.raises(UnsupportedError, match=known):
            quantize_blocks(ones, format_, rule=other)
    with pytest.raises(UnsupportedError, match="alike"):
        dequantize_blocks(BlockFormat.MXFP4_E2M1, (32,), {}, None, Nvfp4Rule.TORCHAO)
