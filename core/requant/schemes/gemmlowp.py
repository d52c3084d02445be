"""gemmlowp: the output stage that LiteRT's double rounding comes from."""

from __future__ import annotations

from dataclasses import replace

from requant.errors import ParameterError
from requant.kernels.convert.requantize.rules import FixedPointRule, Requirement
from requant.schemes.litert import LITERT, SUM_FITS_INT32, right_shift
from requant.schemes.scheme import FixedPoint, Multiplier, Prepared, Sum, normalized

_SHIFTS = (-31, 30)
SHIFTED_FITS_INT32 = "the input minus its zero point, shifted left by max(shift, 0), must fit int32"


def _derive(factor: float) -> Multiplier:
    if factor == 0.0:
        return Multiplier(0, 0)
    multiplier, shift = normalized(factor, 31)
    if not _SHIFTS[0] <= shift <= _SHIFTS[1]:
        raise ParameterError(f"{factor!r} needs shift {shift}, and gemmlowp's are {_SHIFTS[0]} to {_SHIFTS[1]}")
    return Multiplier(multiplier, shift)


def prepare(multiplier: Multiplier) -> Prepared:
    """A multiplier for v that stays in int32 when it is shifted left."""
    return Prepared(multiplier.multiplier, right_shift(multiplier.shift), 31 - max(multiplier.shift, 0))


GEMMLOWP = replace(
    LITERT,
    name="gemmlowp",
    summary="gemmlowp's OutputStageScaleInt32ByFixedPointAndExponent: as litert, where nothing wraps.",
    derivation="as litert, but an error where shift is not -31 to 30",
    source="gemmlowp public/output_stages.h and fixedpoint/fixedpoint.h",
    formula="RDBPOT(SRDHM(v * 2^max(shift, 0), m), max(-shift, 0)) + z_out",
    multiplier_of=_derive,
    shifts=_SHIFTS,
    stage=FixedPoint(
        rule=FixedPointRule.DOUBLE,
        prepare=prepare,
        total=Sum.ERROR,
        demands={Requirement.VALUE: SHIFTED_FITS_INT32, Requirement.SUM: SUM_FITS_INT32},
    ),
)

SCHEMES = (GEMMLOWP,)
