"""CMSIS-NN's portable C: arm_nn_requantize and arm_nn_requantize_s64.

The multipliers are LiteRT's, which CMSIS-NN takes from its model files.
"""

from __future__ import annotations

from dataclasses import replace

from requant.kernels.convert.requantize.rules import FixedPointRule, Requirement
from requant.schemes.gemmlowp import GEMMLOWP, SHIFTED_FITS_INT32, prepare
from requant.schemes.litert import (
    FITS_INT32,
    FITS_INT48,
    LITERT_INT64,
    LITERT_SINGLE_ROUNDING,
    ROUNDING_DIVIDE,
    SCALED_FITS_INT32,
    SUM_FITS_INT32,
    prepare_int64,
    quantize_multiplier_at_least_zero,
)
from requant.schemes.litert import prepare as prepare_single
from requant.schemes.scheme import INT32, INT32_MAX, FixedPoint, Sum

# The intermediate with one more bit is cut to int32 before the last half is added.
_INT31 = (-(1 << 30), (1 << 30) - 1)

CMSIS_NN = replace(
    GEMMLOWP,
    name="cmsis_nn",
    summary="CMSIS-NN, arm_nn_requantize: as litert, where nothing wraps.",
    derivation="as litert for d >= 0",
    source="CMSIS-NN Include/arm_nnsupportfunctions.h arm_nn_requantize, portable C",
    formula="RDBPOT(HM(v * 2^max(shift, 0), m), max(-shift, 0)) + z_out",
    where=f"HM(a, b) = floor((a*b + 2^30) / 2^31); {ROUNDING_DIVIDE}",
    multiplier_of=quantize_multiplier_at_least_zero,
    multipliers=(0, INT32_MAX),
    stage=FixedPoint(
        rule=FixedPointRule.DOUBLE,
        prepare=prepare,
        total=Sum.ERROR,
        demands={Requirement.VALUE: SHIFTED_FITS_INT32, Requirement.SUM: SUM_FITS_INT32},
    ),
)
CMSIS_NN_SINGLE_ROUNDING = replace(
    LITERT_SINGLE_ROUNDING,
    name="cmsis_nn_single_rounding",
    summary="CMSIS-NN built with CMSIS_NN_USE_SINGLE_ROUNDING: as litert_single_rounding, where nothing wraps.",
    derivation="as litert for d >= 0",
    source="CMSIS-NN Include/arm_nnsupportfunctions.h arm_nn_requantize, CMSIS_NN_USE_SINGLE_ROUNDING",
    formula="floor((floor(v * m / 2^(30 - shift)) + 1) / 2) + z_out",
    multiplier_of=quantize_multiplier_at_least_zero,
    stage=FixedPoint(
        rule=FixedPointRule.NEAREST_UP,
        prepare=prepare_single,
        scaled=INT32,
        total=Sum.ERROR,
        demands={
            Requirement.VALUE: FITS_INT32,
            Requirement.SCALED: SCALED_FITS_INT32,
            Requirement.SUM: SUM_FITS_INT32,
        },
    ),
)
CMSIS_NN_INT64 = replace(
    LITERT_INT64,
    name="cmsis_nn_int64",
    summary="CMSIS-NN, arm_nn_requantize_s64: as litert_int64, for scaled values of 31 bits.",
    source="CMSIS-NN Include/arm_nnsupportfunctions.h arm_nn_requantize_s64",
    formula="floor((floor(v * m16 / 2^(14 - shift)) + 1) / 2) + z_out",
    stage=FixedPoint(
        rule=FixedPointRule.NEAREST_UP,
        prepare=prepare_int64,
        scaled=_INT31,
        total=Sum.ERROR,
        demands={
            Requirement.VALUE: FITS_INT48,
            Requirement.SCALED: "the scaled value must lie in [-2^30, 2^30)",
            Requirement.SUM: SUM_FITS_INT32,
        },
    ),
)

SCHEMES = (CMSIS_NN, CMSIS_NN_SINGLE_ROUNDING, CMSIS_NN_INT64)
