"""XNNPACK's requantizations: all from an f32 factor, so that none has more than 24 bits."""

from __future__ import annotations

import math
from dataclasses import replace

from requant.errors import ParameterError
from requant.formats.rounding import Rounding
from requant.kernels.convert.requantize.rules import FixedPointRule, Requirement
from requant.schemes import float_factor
from requant.schemes.litert import FITS_INT32, HIGH_MULTIPLY, ROUNDING_DIVIDE
from requant.schemes.scheme import F32_BITS, FixedPoint, Multiplier, Prepared, as_f32, exact

_SMALLEST, _LARGEST = 2.0**-32, 2.0**8


def _in_range(factor: float, largest: float) -> float:
    """f32(factor). Raise ParameterError unless it is at least 2^-32 and below `largest`."""
    rounded = as_f32(factor)
    if not _SMALLEST <= rounded < largest:
        raise ParameterError(
            f"XNNPACK takes f32 factors of at least {_SMALLEST!r} and below {largest!r}; not {factor!r}"
        )
    return rounded


def _of_f32(factor: float) -> Multiplier:
    return Multiplier(*exact(_in_range(factor, _LARGEST), F32_BITS))


def _gemmlowp(factor: float) -> Multiplier:
    """The 24 bits as a multiplier of 31, and the shift after its high half is taken."""
    multiplier, shift = exact(_in_range(factor, 1.0), F32_BITS)
    return Multiplier(multiplier << 7, shift - 24)


def _convert(factor: float) -> Multiplier:
    """RNE(256 * f32(factor)), for factors of 2^-8 to 2^7."""
    rounded = as_f32(factor)
    if not 2.0**-8 <= rounded <= 2.0**7:
        raise ParameterError(f"XNNPACK converts 8-bit numbers by f32 factors of 2^-8 to 2^7; not by {factor!r}")
    return Multiplier(round(math.ldexp(rounded, 8)), 8)


_ONE_ROUNDING = FixedPoint(
    rule=FixedPointRule.NEAREST_UP,
    prepare=lambda given: Prepared(given.multiplier, given.shift, 31),
    demands={Requirement.VALUE: FITS_INT32},
)

XNNPACK_FP32 = float_factor.f32_product(
    name="xnnpack_fp32",
    summary="XNNPACK fp32: one f32 product, ties to even. What LiteRT's default interpreter does to accumulators.",
    derivation="m of 24 bits and shift with f32(d) = m * 2^-shift exactly; 2^-32 <= f32(d) < 256",
    source="XNNPACK src/qs8-requantization, fp32 (lrintf and magic-number forms alike)",
    multiplier_of=_of_f32,
    multipliers=(0, (1 << F32_BITS) - 1),
    shifts=(16, 55),
)
XNNPACK_RNDNU = replace(
    XNNPACK_FP32,
    name="xnnpack_rndnu",
    summary="XNNPACK rndnu: the f32's 24 bits as an integer, one rounding, ties up.",
    source="XNNPACK src/qs8-requantization, rndnu",
    formula="floor((v * m + 2^(shift-1)) / 2^shift) + z_out",
    where="",
    rounding=Rounding.SINGLE,
    stage=_ONE_ROUNDING,
)
XNNPACK_RNDNA = replace(
    XNNPACK_RNDNU,
    name="xnnpack_rndna",
    summary="XNNPACK rndna, formerly precise: the f32's 24 bits as an integer, one rounding, ties away from zero.",
    source="XNNPACK src/qs8-requantization, rndna",
    formula="sign(v) * floor((|v| * m + 2^(shift-1)) / 2^shift) + z_out",
    rounding=Rounding.NEAREST_AWAY,
    stage=replace(_ONE_ROUNDING, rule=FixedPointRule.NEAREST_AWAY),
)
XNNPACK_GEMMLOWP = replace(
    XNNPACK_FP32,
    name="xnnpack_gemmlowp",
    summary="XNNPACK gemmlowp, formerly q31: two roundings, with a multiplier of 24 bits.",
    derivation="the 24 bits of f32(d) as m in [2^30, 2^31), with f32(d) = m * 2^-(31 + shift) exactly; 2^-32 <= "
    "f32(d) < 1",
    source="XNNPACK src/qs8-requantization, gemmlowp",
    convention="m * 2^-(31 + shift)",
    formula="RDBPOT(SRDHM(v, m), shift) + z_out",
    where=f"{HIGH_MULTIPLY}; {ROUNDING_DIVIDE}",
    rounding=Rounding.DOUBLE,
    multiplier_of=_gemmlowp,
    right_shift=lambda shift: 31 + shift,
    multipliers=(0, (1 << 31) - 1),
    shifts=(0, 31),
    stage=FixedPoint(
        rule=FixedPointRule.DOUBLE,
        prepare=lambda given: Prepared(given.multiplier, 31 + given.shift, 31),
        demands={Requirement.VALUE: FITS_INT32},
    ),
)
XNNPACK_CVT8 = replace(
    XNNPACK_RNDNU,
    name="xnnpack_cvt8",
    summary="XNNPACK's conversion between 8-bit numbers: a factor of 8 fraction bits, ties up.",
    derivation="m = RNE(256 * f32(d)), shift = 8; 2^-8 <= f32(d) <= 2^7",
    source="XNNPACK src/qs8-vcvt and src/qu8-vcvt",
    formula="floor((v * m + 2^7) / 2^8) + z_out",
    multiplier_of=_convert,
    multipliers=(1, 1 << 15),
    shifts=(8, 8),
    stage=FixedPoint(
        rule=FixedPointRule.NEAREST_UP,
        prepare=lambda given: Prepared(given.multiplier, given.shift, 8),
        demands={Requirement.VALUE: "the input minus its zero point must be a difference of 8-bit numbers"},
    ),
)

SCHEMES = (XNNPACK_FP32, XNNPACK_RNDNU, XNNPACK_RNDNA, XNNPACK_GEMMLOWP, XNNPACK_CVT8)
