"""Addition of two quantized numbers in exact integers and fractions, by profile, importing nothing of ours.

LiteRT: add.cc and reference_integer_ops Add; XNNPACK: qs8-vadd; StableHLO: its passes to math and to RESCALE; the
others dequantize, add and quantize in f32, whose steps numpy's scalars make.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from tests.oracles import schemes as scheme_oracle

ANY = (-(10**15), 10**15)


def _stage(scheme: str, v: int, factor: float, z: int = 0, bounds: tuple[int, int] = ANY) -> int | None:
    derived = scheme_oracle.derive(scheme, factor)
    if derived is None:
        return None
    return scheme_oracle.requantized(scheme, v, 0, derived.multiplier, derived.shift, z, bounds, factor)


def _three_multipliers(
    scheme: str, a: int, b: int, scales: tuple[float, float, float], z: int, bounds: tuple[int, int], left: int,
    *, shifted: bool,
) -> int | None:  # fmt: skip
    s_a, s_b, s_y = (float(np.float32(each)) if shifted else each for each in scales)
    m = 2 * max(s_a, s_b)
    sides = []
    for v, scale in ((a, s_a), (b, s_b)):
        side = _stage(scheme, v << left, scale / m) if shifted else _stage(scheme, v, scale / m * 2.0**left)
        if side is None:
            return None
        sides.append(side)
    return _stage(scheme, sum(sides), m / (2.0**left * s_y), z, bounds)


def _xnnpack(a: int, b: int, scales: tuple[float, float, float], z: int, bounds: tuple[int, int]) -> int:
    ratios = [Fraction(float(np.float32(each) / np.float32(scales[2]))) for each in scales[:2]]
    exponent = math.floor(math.log2(max(ratios)))
    shift = 20 - exponent
    m_a, m_b = (round(each * Fraction(2) ** shift) for each in ratios)
    rounded = math.floor((Fraction(a * m_a + b * m_b) / 2**shift) + Fraction(1, 2))
    return int(min(max(rounded + z, bounds[0]), bounds[1]))


def _stablehlo(
    qs: tuple[int, int], zs: tuple[int, int], scales: tuple[float, float, float], z: int, bounds: tuple[int, int]
) -> int | None:
    total = 0
    for q, z_in, scale in zip(qs, zs, scales, strict=False):
        d = scale / scales[2]
        derived = scheme_oracle.derive("stablehlo", d)
        assert derived is not None
        side = scheme_oracle.requantized("stablehlo", q, z_in, derived.multiplier, derived.shift, z, ANY, d)
        assert side is not None
        total += side
    return min(max(total - z, bounds[0]), bounds[1])


def _through_real(
    a: int, b: int, scales: tuple[float, float, float], z: int, bounds: tuple[int, int], profile: str
) -> int:
    f = np.float32
    total = f(f(a) * f(scales[0])) + f(f(b) * f(scales[1]))
    if profile.startswith("onnx"):
        rounded = round(float(total / f(scales[2]))) + z
    elif profile == "onednn":
        rounded = round(float(f(f(total * (f(1) / f(scales[2]))) + f(z))))
    else:
        rounded = round(float(f(total * f(1.0 / scales[2])))) + z
    return min(max(rounded, bounds[0]), bounds[1])


def added(
    profile: str, qs: tuple[int, int], zs: tuple[int, int], scales: tuple[float, float, float], z: int,
    bounds: tuple[int, int], left: int = 20,
) -> int | None:  # fmt: skip
    """The stored sum; None where the profile's arithmetic has none."""
    a, b = qs[0] - zs[0], qs[1] - zs[1]
    if profile == "stablehlo":
        return _stablehlo(qs, zs, scales, z, bounds)
    if profile == "litert_xnnpack":
        return _xnnpack(a, b, scales, z, bounds)
    if profile in ("litert", "litert_single_rounding", "tosa", "tosa_double_round"):
        shifted = profile.startswith("litert")
        return _three_multipliers(profile, a, b, scales, z, bounds, left, shifted=shifted)
    return _through_real(a, b, scales, z, bounds, profile)
