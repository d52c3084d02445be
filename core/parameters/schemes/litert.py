"""LiteRT: a 31-bit multiplier and a shift, positive to the left (spec/numerics.md C.2, C.5)."""

from __future__ import annotations

from dataclasses import replace

from core.errors import ParameterError
from core.kernels.requantize import FixedPointRule, Requirement
from core.parameters.schemes.scheme import (
    INT32,
    INT32_MAX,
    Factor,
    FixedPoint,
    Multiplier,
    Prepared,
    Scheme,
    Sum,
)
from core.parameters.schemes.significand import normalized
from core.profiles.rounding import Rounding

FITS_INT32 = "the input minus its zero point must fit int32"
SCALED_FITS_INT32 = "the scaled value must fit int32"


def quantize_multiplier(factor: float) -> Multiplier:
    """QuantizeMultiplier: factor ~ m * 2^(shift - 31), positive shift left. Below about 2^-32 it is (0, 0)."""
    if factor == 0.0:
        return Multiplier(0, 0)
    multiplier, shift = normalized(factor, 31)
    return Multiplier(0, 0) if shift < -31 else Multiplier(multiplier, shift)


def at_least_zero(factor: float) -> None:
    """Raise ParameterError for a negative factor."""
    if factor < 0.0:
        raise ParameterError(f"the scheme needs a factor of at least 0; this one is {factor!r}")


def _single_rounding(factor: float) -> Multiplier:
    """The same for factors of at least 0, with shifts above 30 replaced by (2^31 - 1, 30)."""
    at_least_zero(factor)
    derived = quantize_multiplier(factor)
    return Multiplier(INT32_MAX, 30) if derived.shift > 30 else derived


def right_shift_of(given: int) -> int:
    """The right shift of the whole product that LiteRT's shift stands for."""
    return 31 - given


def prepare(given: Multiplier) -> Prepared:
    """A multiplier for v in int32."""
    return Prepared(given.multiplier, right_shift_of(given.shift), 31)


LITERT = Scheme(
    name="litert",
    summary="LiteRT's reference kernels: 31-bit multiplier, positive shift left, two roundings",
    source="LiteRT QuantizeMultiplier, MultiplyByQuantizedMultiplier; spec/numerics.md C.2, C.5",
    convention="m * 2^(shift - 31)",
    formula="RDBPOT(SRDHM(wrap32(v * 2^max(shift, 0)), m), max(-shift, 0)) + z_out, the sum wrapping in int32; "
    "SRDHM(a, b) = floor((a*b + 2^30) / 2^31), saturating; RDBPOT(x, n) = RNA(x / 2^n)",
    rounding=Rounding.DOUBLE,
    factor=Factor.F64_OF_F32,
    derive=quantize_multiplier,
    right_shift=right_shift_of,
    multipliers=INT32,
    shifts=(-31, 31),
    stage=FixedPoint(
        rule=FixedPointRule.DOUBLE, prepare=prepare, total=Sum.WRAPS, demands={Requirement.VALUE: FITS_INT32}
    ),
)
LITERT_SINGLE_ROUNDING = replace(
    LITERT,
    name="litert_single_rounding",
    summary="LiteRT built with TFLITE_SINGLE_ROUNDING: the same multiplier, one rounding",
    formula="floor((v * m + 2^(30 - shift)) / 2^(31 - shift)) + z_out, the sum wrapping in int32",
    rounding=Rounding.SINGLE,
    derive=_single_rounding,
    multipliers=(0, INT32_MAX),
    shifts=(-31, 30),
    stage=FixedPoint(
        rule=FixedPointRule.NEAREST_UP,
        prepare=prepare,
        scaled=INT32,
        total=Sum.WRAPS,
        demands={Requirement.VALUE: FITS_INT32, Requirement.SCALED: SCALED_FITS_INT32},
    ),
)

SCHEMES = (LITERT, LITERT_SINGLE_ROUNDING)
