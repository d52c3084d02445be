"""Quantize to small floats and back: the quotient of the profile, then its authority's code, element by element."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.errors import TensorDataError, UnsupportedError
from requant.mlir import parse_type
from requant.profiles import PROFILES, Operation
from tests.oracles import profiles as profile_oracle
from tests.oracles import small_floats as small_float_oracle
from tests.oracles.quantization import from_bits
from tests.support.drawn_types import tensor
from tests.support.float_samples import SPECIAL, patterns

# The storages of the language: the others are element types, and not yet storages of MLIR.
STORAGES = ("f8E4M3FN", "f8E5M2", "f4E2M1FN")
CASES = [
    (name, storage)
    for name, profile in PROFILES.items()
    if Operation.QUANTIZE in profile.operations
    for storage in STORAGES
    if storage in profile.operations[Operation.QUANTIZE].storages
]
NAN = {("onnx", "f8E5M2"): 0x7F}


def values(storage: str, scale: float) -> np.ndarray:
    """Every representable number times the scale, the midpoints, their neighbours, and specials."""
    codes = 16 if storage == "f4E2M1FN" else 256
    decoded = np.array([from_bits(small_float_oracle.decode(storage, code)) for code in range(codes)])
    points = np.unique(decoded[np.isfinite(decoded)])
    points = np.concatenate(
        [points, (points[1:] + points[:-1]) / 2, points * 1.001, [1e30, -1e30, 463.9, 464.1, 61440.0]]
    )
    scaled = (points * scale).astype(np.float32)
    near = [np.nextafter(scaled, np.float32(limit)) for limit in (-np.inf, np.inf)]
    rng = np.random.default_rng(31)
    found = np.concatenate([scaled, *near, SPECIAL, patterns(300, rng)])
    # NaN has no code in f4; what it becomes there is the authority's own choice, tested apart.
    return found[~np.isnan(found)] if storage == "f4E2M1FN" else found


@pytest.mark.parametrize(("profile", "storage"), CASES)
@pytest.mark.parametrize("scale", [1.0, 0.0237])
def test_quantize(profile: str, storage: str, scale: float) -> None:
    x = values(storage, scale)
    plan = plan_quantize(
        tensor(f"tensor<{x.size}xf32>"), parse_type(f"!quant.uniform<{storage}:f32, {scale}>"), profile
    )
    codes = np.empty(x.size, np.uint8)
    report = plan.run(x, codes)
    s = profile_oracle.F32.round(Fraction(scale))
    saturating = profile != "onednn"
    special = small_float_oracle.special_codes(storage, saturating=saturating)
    expected = []
    for value in x.tolist():
        if profile == "onednn":
            y = profile_oracle.product(value, profile_oracle.reciprocal(scale), profile_oracle.F32)
            # A zero loses its sign; what underflows to zero on the way keeps it.
            if y == 0:
                y = 0.0
            elif math.isfinite(y):
                y = math.copysign(profile_oracle.FORMATS["f16"].round(Fraction(y)), y)
        else:
            y = profile_oracle.quotient(value, s, profile_oracle.F32)
        if (profile, storage) == ("onnx_reference", "f4E2M1FN"):
            y += 0.0  # the evaluator adds the zero point before the cast
        expected.append(small_float_oracle.encode(storage, y, **special))
    nan = np.isnan(x)
    assert codes[~nan].tolist() == [code for code, missing in zip(expected, nan, strict=True) if not missing]
    assert {small_float_oracle.decode(storage, int(code)) for code in codes[nan]} <= {"7fc00000", "ffc00000"}
    assert report.nan == int(nan.sum())
    assert report.saturated_low > 0
    assert report.saturated_high > 0


@pytest.mark.parametrize(("profile", "storage"), CASES)
@pytest.mark.parametrize("scale", [1.0, 0.0237])
def test_dequantize_every_code(profile: str, storage: str, scale: float) -> None:
    count = 16 if storage == "f4E2M1FN" else 256
    codes = np.arange(count, dtype=np.uint8)
    plan = plan_dequantize(tensor(f"tensor<{count}x!quant.uniform<{storage}:f32, {scale}>>"), None, profile)
    real = np.empty(count, np.float32)
    plan.run(codes, real)
    s = profile_oracle.F32.round(Fraction(scale))
    for code, got in enumerate(real.tolist()):
        value = from_bits(small_float_oracle.decode(storage, code))
        if math.isfinite(value):
            assert got == profile_oracle.F32.round(Fraction(value) * Fraction(s))
        else:
            assert math.isnan(got) if math.isnan(value) else got == value


def test_codes_beyond_the_format_and_zero_points_are_refused() -> None:
    plan = plan_dequantize(tensor("tensor<1x!quant.uniform<f4E2M1FN:f32, 1.0>>"), None, "onnx")
    with pytest.raises(TensorDataError):
        plan.run(np.array([16], np.uint8), np.empty(1, np.float32))
    with pytest.raises(UnsupportedError, match="zero point"):
        plan_quantize(tensor("tensor<4xf32>"), parse_type("!quant.uniform<f8E5M2:f32, 1.0:1>"), "onnx")
    with pytest.raises(UnsupportedError, match="bounds"):
        plan_quantize(tensor("tensor<4xf32>"), parse_type("!quant.uniform<f8E5M2<-10:10>:f32, 1.0>"), "onnx")
