"""Products of quantized tensors in Python's integers, importing nothing of ours.

The output stages are those of `tests.oracles.schemes`; docs/integer_operations.md says which a profile has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from tests.oracles import quantization as oracle
from tests.oracles import schemes as scheme_oracle

INT32 = (-(2**31), 2**31 - 1)
# What each profile does to sums of 32 bits.
SCHEMES = {
    "litert": {"matmul": "litert_float", "batched": "litert", "conv2d": "litert"},
    "litert_single_rounding": {
        "matmul": "litert_float",
        "batched": "litert_single_rounding",
        "conv2d": "litert_single_rounding",
    },
    **{
        profile: dict.fromkeys(("matmul", "batched", "conv2d"), scheme)
        for profile, scheme in {
            "litert_xnnpack": "xnnpack_fp32",
            "onnx": "onnxruntime",
            "onnx_1_32": "onnxruntime",
            "onnx_reference": "onnx_reference",
            "torch": "fbgemm",
            "stablehlo": "stablehlo",
            "tosa": "tosa",
            "tosa_double_round": "tosa_double_round",
        }.items()
    },
}
# LiteRT's optimized kernels, for what XNNPACK leaves to them (as seen live).
UNDELEGATED = {"litert_xnnpack": "arm_vector"}
ERRORS_ON_OVERFLOW = ("litert", "litert_single_rounding", "tosa", "tosa_double_round")


class Side(NamedTuple):
    """Scales and zero points for one operand or the output: one, or one for each index."""

    scales: Sequence[float]
    zeros: Sequence[int]

    def scale(self, index: int) -> float:
        return self.scales[index % len(self.scales)]

    def zero(self, index: int) -> int:
        return self.zeros[index % len(self.zeros)]


def wrapped(value: int, bits: int = 32) -> int:
    """Modulo 2^bits, signed."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def scaled(
    scheme: str, acc: int, scale_a: float, scale_b: float, scale_y: float, zero: int, bounds: tuple[int, int],
    d: float | None = None,
) -> int | None:  # fmt: skip
    """The output stage: None where the scheme is not defined."""
    factor = scheme_oracle.factor(scheme, scale_a, scale_b, scale_y) if d is None else d
    derived = scheme_oracle.derive(scheme, factor)
    if derived is None:
        return None
    return scheme_oracle.requantized(scheme, acc, 0, derived.multiplier, derived.shift, zero, bounds, factor)


def is_undelegated(profile: str, of_a: str, of_b: str, b_zeros: Sequence[int], depth: int | None = None) -> bool:
    """Whether XNNPACK leaves a product to LiteRT: more than 8 bits, signed weights with a zero point, or weights of 4
    or 2 bits, but of a FULLY_CONNECTED with an even depth, of 2 bits a multiple of 4 and a scale for each channel.
    """
    wide = max(int(of_a[1:]), int(of_b[1:])) > 8
    taken = {
        "i4": depth is not None and depth % 2 == 0,
        "i2": depth is not None and depth % 4 == 0 and len(b_zeros) > 1,
    }.get(of_b, True)
    return profile in UNDELEGATED and (wide or not taken or (of_b[0] == "i" and any(b_zeros)))


def output_stage(profile: str, operation: str, *, undelegated: bool) -> str:
    """The scheme of sums of 32 bits."""
    return UNDELEGATED[profile] if undelegated else SCHEMES[profile][operation]


def batched_factor(scale_a: float, scale_b: float, scale_y: float) -> float:
    """LiteRT GetQuantizedConvolutionMultipler: f64(f32(s_in * s_w)) / f64(s_out).

    Of BATCH_MATMUL and the optimized FULLY_CONNECTED per tensor.
    """
    a, b, y = (oracle.f32(Fraction(each)) for each in (scale_a, scale_b, scale_y))
    return oracle.f32(Fraction(a) * Fraction(b)) / y


def onednn(acc: int, scale_a: float, scale_b: float, scale_y: float, zero: int, bounds: tuple[int, int]) -> int:
    """oneDNN, without a bias: RNE(f32(f32(f32(f32(acc) * f32(sx * sw)) * f32(1 / sy)) + z))."""
    product = np.float32(scale_a) * np.float32(scale_b)
    with np.errstate(over="ignore"):
        value = np.float32(np.float32(acc) * product) * (np.float32(1) / np.float32(scale_y))
        shifted = float(np.float32(value + np.float32(zero)))
    clamped = min(max(shifted, bounds[0]), bounds[1])
    return oracle.nearest_even(Fraction(clamped)) if math.isfinite(clamped) else 0


def rescaled_bias(bias: int, own: float, sums: float, *, away: bool) -> int:
    """Requant's own rule: round(b * s_b / (s_in * s_w)), exactly; nothing where the scales agree in f32."""
    if own == sums or np.float32(own) == np.float32(sums):
        return bias
    real = Fraction(bias) * Fraction(own) / Fraction(sums)
    floor = math.floor(real)
    rest = real - floor
    if rest == Fraction(1, 2):
        return (floor + (real > 0)) if away else floor + floor % 2
    return floor + (rest > Fraction(1, 2))
