"""Division as two multiplications: the bits of true division, for scales that the proof takes and for those it refuses.

numpy's division and rint are the oracle: IEEE 754 in f32, of every significand there is.
"""

from __future__ import annotations

import numpy as np
import pytest

from requant.convert.quantize import plan_quantize
from requant.kernels.scalar.reciprocal import reciprocals_agree
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from tests.support.cases import EXHAUSTIVE

SIGNIFICANDS = (np.arange(1 << 23, dtype=np.uint32) | np.uint32(0x3F800000)).view(np.float32)
BESIDE_TIES = 4
# For these, found by search, one integer or more would differ: at zero point 0, at 3 if it is added first, and where
# ties go away from zero.
REFUSED, REFUSED_BEFORE = float.fromhex("0x1.f6e87ep-4"), float.fromhex("0x1.f0eafep-1")
REFUSED_AWAY, REFUSED_EVEN = float.fromhex("0x1.bc7b7ep-1"), float.fromhex("0x1.f9acfep-2")
# For this one the two quotients of one significand differ in the last place, and no integer of 16 bits does.
DIFFERING, SIGNIFICAND = float(np.uint32(1055642063).view(np.float32)), 4940525


def agree(scale: float, zero_point: int, before: bool, away: bool = False) -> bool:
    scales, found = np.array([scale], np.float32), np.empty((2, 1), np.float32)
    taken: bool = reciprocals_agree(scales, np.array([zero_point], np.float32), before, away, found[0], found[1])
    return taken


def quantized(x: np.ndarray, storage: str, scale: float, zero_point: int, profile: str) -> np.ndarray:
    real, target_type = parse_type(f"tensor<{x.size}xf32>"), f"!quant.uniform<{storage}:f32, {scale:.17e}:{zero_point}>"
    assert isinstance(real, TensorType)
    plan = plan_quantize(real, parse_type(target_type), profile)
    target = np.empty(x.size, plan.output_dtype)
    plan.run(x, target)
    return target


def divided(x: np.ndarray, scale: float, zero_point: int, before: bool) -> np.ndarray:
    """What both profiles give within the bounds of the storage, which the caller must not leave."""
    quotient = x / np.float32(scale)
    steps = np.rint(quotient + np.float32(zero_point)) if before else np.rint(quotient) + np.float32(zero_point)
    return steps.astype(np.int64)


def divided_away(x: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """What LiteRT gives: ties away from zero. The sum is exact in f64."""
    quotient = (x / np.float32(scale)).astype(np.float64)
    return (np.copysign(np.floor(np.abs(quotient) + 0.5), quotient) + zero_point).astype(np.int64)


def significands(exponent: int) -> np.ndarray:
    """Every significand. In a sample those whose products with 2^exponent are at and beside ties, and a few others."""
    first = int(2.0**exponent)
    ties = (np.arange(first, max(2 * first, 1)) + 0.5) / 2.0**exponent
    beside = ((ties - 1) * 2.0**23).astype(np.int64)[:, None] + np.arange(-BESIDE_TIES, BESIDE_TIES + 1)
    others = np.arange(0, SIGNIFICANDS.size, 1009)
    return SIGNIFICANDS if EXHAUSTIVE else SIGNIFICANDS[np.union1d(np.clip(beside, 0, SIGNIFICANDS.size - 1), others)]


@pytest.mark.parametrize("scale", [0.1, 1 / 255, 0.0237, DIFFERING, REFUSED, REFUSED_BEFORE, REFUSED_AWAY])
@pytest.mark.parametrize("exponent", [-1, 0, 6, 14])
@pytest.mark.parametrize("sign", [1, -1])
def test_every_significand(scale: float, exponent: int, sign: int) -> None:
    x = significands(exponent) * np.float32(sign * scale * 2.0**exponent)
    assert np.array_equal(quantized(x, "i16", scale, 3, "onnx"), divided(x, scale, 3, before=False).clip(-32768, 32767))
    assert np.array_equal(
        quantized(x, "i16", scale, 3, "stablehlo"), divided(x, scale, 3, before=True).clip(-32768, 32767)
    )
    assert np.array_equal(quantized(x, "i8", scale, 3, "litert"), divided_away(x, scale, 3).clip(-128, 127))


def test_quotients_of_32_bits_are_divided() -> None:
    """The integers of 32 bits differ where those of 16 do not, so the proof says nothing of them."""
    assert agree(DIFFERING, 0, before=False)
    x = SIGNIFICANDS[SIGNIFICAND : SIGNIFICAND + 1] * np.float32(2.0) ** np.arange(18, 30, dtype=np.float32)
    for profile, before in (("onnx", False), ("stablehlo", True)):
        assert np.array_equal(quantized(x, "i32", DIFFERING, 0, profile), divided(x, DIFFERING, 0, before)), profile


def test_what_the_proof_refuses() -> None:
    assert not agree(REFUSED, 0, before=False)
    assert not agree(REFUSED_BEFORE, 3, before=True)
    assert not agree(REFUSED_AWAY, 0, before=False, away=True)
    assert agree(REFUSED_AWAY, 0, before=False)
    assert not agree(REFUSED_EVEN, 0, before=False)
    assert agree(REFUSED_EVEN, 0, before=False, away=True)
    assert not agree(2.0**-70, 0, before=False)
    assert not agree(float("nan"), 0, before=False)


def test_nearly_all_scales_are_taken() -> None:
    rng = np.random.default_rng(8)
    taken = sum(agree(scale, 0, before=False) for scale in rng.uniform(1e-3, 1, 20_000))
    assert 19_960 <= taken < 20_000
