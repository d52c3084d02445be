"""FBGEMM, PyTorch's x86 kernels: a float factor, or 31 bits of it."""

from __future__ import annotations

import math

from requant.errors import ParameterError
from requant.formats.rounding import Rounding
from requant.kernels.convert.requantize.rules import FixedPointRule, Requirement
from requant.schemes import float_factor
from requant.schemes.litert import FITS_INT32
from requant.schemes.scheme import INT32_MAX, Factor, FixedPoint, Multiplier, Prepared, Scheme, as_f32


def _choose_requantization_multiplier(factor: float) -> Multiplier:
    """ChooseRequantizationMultiplier: f32(factor) = d * 2^(31-s), d in [1/2, 1]; m = RNE(d * 2^31), below 2^31."""
    rounded = as_f32(factor)
    if rounded <= 0.0:
        raise ParameterError(f"FBGEMM takes f32 factors above 0; not {factor!r}")
    # The 24 bits of an f32 leave nothing to round.
    fraction, exponent = math.frexp(rounded)
    shift = 31 - exponent
    if not 1 <= shift <= 63:
        raise ParameterError(f"{factor!r} needs shift {shift}, and FBGEMM's are 1 to 63")
    return Multiplier(int(math.ldexp(fraction, 31)), shift)


def _prepare(multiplier: Multiplier) -> Prepared:
    # No product reaches 2^62, so that a right shift of 63 leaves nothing.
    return Prepared(0, 62, 31) if multiplier.shift > 62 else Prepared(multiplier.multiplier, multiplier.shift, 31)


FBGEMM = float_factor.f32_product(
    name="fbgemm",
    summary="FBGEMM: one f32 product, ties to even.",
    source="FBGEMM requantizeOutputProcessing, torch's quantized linear without a bias",
)
FBGEMM_FIXED_POINT = Scheme(
    name="fbgemm_fixed_point",
    summary="FBGEMM's fixed point: 31 bits of an f32, one rounding, ties up.",
    derivation="f32(d) = m * 2^-shift exactly, m in [2^30, 2^31); f32(d) > 0, shift 1 to 63",
    source="FBGEMM QuantUtils.cc ChooseRequantizationMultiplier, QuantUtils.h Requantize",
    convention=float_factor.CONVENTION,
    formula="floor((v * m + 2^(shift-1)) / 2^shift) + z_out",
    rounding=Rounding.SINGLE,
    factor=Factor.F32,
    multiplier_of=_choose_requantization_multiplier,
    right_shift=float_factor.right_shift,
    multipliers=(0, INT32_MAX),
    shifts=(1, 63),
    stage=FixedPoint(rule=FixedPointRule.NEAREST_UP, prepare=_prepare, demands={Requirement.VALUE: FITS_INT32}),
)

SCHEMES = (FBGEMM, FBGEMM_FIXED_POINT)
