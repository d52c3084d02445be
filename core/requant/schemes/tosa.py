"""TOSA RESCALE: 31 or 15 bits and a right shift."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from requant.errors import ParameterError
from requant.formats.rounding import Rounding
from requant.kernels.convert.requantize.rules import FixedPointRule, FloatRule, Requirement
from requant.schemes.scheme import (
    INT32,
    INT32_MAX,
    Factor,
    FixedPoint,
    Float,
    Multiplier,
    Prepared,
    PreparedFactor,
    Scheme,
    Sum,
    normalized,
)

_INT16_MAX = (1 << 15) - 1
_INT48_WIDTH = 47


def _derive(factor: float, bits: int) -> Multiplier:
    """factor ~ m * 2^-shift, m < 2^bits, 2 <= shift <= 62, as MLIR derives it.

    A negative factor gives a negative multiplier, as in MLIR; RESCALE does not take it.
    """
    multiplier, exponent = normalized(factor, bits)
    shift = bits - exponent
    if shift > 62:
        return Multiplier(multiplier >> min(31, shift - 62), 62)
    if shift < 2:
        largest = math.ldexp(1.0, bits - 1)
        raise ParameterError(
            f"{factor!r} needs shift {shift}, and TOSA's are 2 to 62: the factor must be below {largest!r}"
        )
    return Multiplier(multiplier, shift)


def _value_width(multiplier: Multiplier) -> int:
    """RESCALE's bound of the value with scale32. It is int32 in any case: no wider input has scale32."""
    return min(31, multiplier.shift - 1)


def _f32_factor(multiplier: Multiplier) -> float:
    """f32(m) * 2^-shift. The power of two is exact, so that it can be applied before the product is rounded."""
    return math.ldexp(float(np.float32(multiplier.multiplier)), -multiplier.shift)


_VALUE32 = "RESCALE requires -2^(shift-1) <= input - input zero point < 2^(shift-1), and int32, with scale32"
_VALUE48 = "RESCALE requires input - input zero point to fit 48 bits"
_SCALED = "RESCALE requires the scaled value to fit int32 without scale32"
_SUM = "RESCALE requires the addition of the output zero point not to overflow int32"

_SINGLE_ROUND = FixedPoint(
    rule=FixedPointRule.NEAREST_UP,
    prepare=lambda given: Prepared(given.multiplier, given.shift, _value_width(given)),
    total=Sum.ERROR,
    demands={Requirement.VALUE: _VALUE32, Requirement.SUM: _SUM},
)

TOSA = Scheme(
    name="tosa",
    summary="TOSA RESCALE with scale32 and SINGLE_ROUND: 31-bit multiplier, right shift",
    derivation="d = f * 2^e, 0.5 <= |f| < 1: m = RNA(f * 2^31), shift = 31 - e; where m = 2^31, m = 2^30, shift = 30 "
    "- e; then where shift > 62, m = floor(m / 2^min(31, shift - 62)), shift = 62; an error where shift < 2",
    source="TOSA 1.0 RESCALE; MLIR lib/Dialect/Tosa/Utils/QuantUtils.cpp computeMultiplierAndShift",
    convention="m * 2^-shift",
    formula="floor((v * m + 2^(shift-1)) / 2^shift) + z_out",
    rounding=Rounding.SINGLE,
    factor=Factor.F64,
    multiplier_of=lambda factor: _derive(factor, 31),
    right_shift=lambda shift: shift,
    multipliers=(0, INT32_MAX),
    shifts=(2, 62),
    stage=_SINGLE_ROUND,
)
TOSA_DOUBLE_ROUND = replace(
    TOSA,
    name="tosa_double_round",
    summary="TOSA RESCALE with scale32 and DOUBLE_ROUND",
    formula="floor((v * m + r) / 2^shift) + z_out",
    where="r = 2^(shift-1), and if shift > 31 then r += 2^30 for v >= 0, else r -= 2^30",
    rounding=Rounding.DOUBLE,
    stage=replace(_SINGLE_ROUND, rule=FixedPointRule.TOSA_DOUBLE),
)
TOSA_INEXACT_ROUND = replace(
    TOSA,
    name="tosa_inexact_round",
    summary="TOSA RESCALE with scale32 and INEXACT_ROUND, as the reference model computes it",
    formula="RNE(f32(f32(v) * f32(m)) * 2^-shift) + z_out",
    rounding=Rounding.NEAREST_EVEN,
    stage=Float(
        rule=FloatRule.F32_EVEN,
        prepare=lambda given: PreparedFactor(_f32_factor(given), _value_width(given)),
        precision=None,
        demands={Requirement.VALUE: _VALUE32},
    ),
)
TOSA_SCALE16 = replace(
    TOSA,
    name="tosa_scale16",
    summary="TOSA RESCALE without scale32, SINGLE_ROUND: 15-bit multiplier, right shift, input up to 48 bits",
    derivation="as tosa with 15 for 31, and 14 for 30",
    multiplier_of=lambda factor: _derive(factor, 15),
    multipliers=(0, _INT16_MAX),
    stage=FixedPoint(
        rule=FixedPointRule.NEAREST_UP,
        prepare=lambda given: Prepared(given.multiplier, given.shift, _INT48_WIDTH),
        scaled=INT32,
        total=Sum.ERROR,
        demands={Requirement.VALUE: _VALUE48, Requirement.SCALED: _SCALED, Requirement.SUM: _SUM},
    ),
)
TOSA_SCALE16_INEXACT_ROUND = replace(
    TOSA_SCALE16,
    name="tosa_scale16_inexact_round",
    summary="TOSA RESCALE without scale32, INEXACT_ROUND, as the reference model computes it",
    formula=TOSA_INEXACT_ROUND.formula,
    rounding=Rounding.NEAREST_EVEN,
    stage=Float(
        rule=FloatRule.F32_EVEN,
        prepare=lambda given: PreparedFactor(_f32_factor(given), _INT48_WIDTH),
        precision=None,
        # The reference model converts to int32 what does not fit it: C++ does not define that.
        scaled=INT32,
        total=Sum.ERROR,
        demands={Requirement.VALUE: _VALUE48, Requirement.SCALED: _SCALED, Requirement.SUM: _SUM},
    ),
)

SCHEMES = (TOSA, TOSA_DOUBLE_ROUND, TOSA_INEXACT_ROUND, TOSA_SCALE16, TOSA_SCALE16_INEXACT_ROUND)
