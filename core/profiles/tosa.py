"""TOSA: RESCALE, between integers only."""

from __future__ import annotations

from core.profiles.rounding import Rounding
from core.profiles.rule import NO_NAN, Operation, OperationRule, Profile, ZeroPoint

_STORAGES = ("i8", "u8", "i16", "u16", "i32")
_SATURATION = (
    "clamp after the addition of z_out; a shift outside 2..62, or q - z_in outside "
    "[-2^(shift-1), 2^(shift-1)), is an error"
)
_SINGLE = OperationRule(
    formula="clamp(floor(((q - z_in) * m + 2^(shift-1)) / 2^shift) + z_out, lo, hi)",
    precision="m, shift from s_in / s_out in f64; exact 64-bit product",
    rounding=Rounding.SINGLE,
    zero_point=ZeroPoint.AFTER_ROUNDING,
    saturation=_SATURATION,
    nan=NO_NAN,
    storages=_STORAGES,
    scheme="tosa",
)
_DOUBLE = OperationRule(
    formula="clamp(floor(((q - z_in) * m + r) / 2^shift) + z_out, lo, hi), r = 2^(shift-1), and where shift > 31 "
    "r += 2^30 if q >= z_in else r -= 2^30",
    precision="m, shift from s_in / s_out in f64; exact 64-bit product",
    rounding=Rounding.DOUBLE,
    zero_point=ZeroPoint.AFTER_ROUNDING,
    saturation=_SATURATION,
    nan=NO_NAN,
    storages=_STORAGES,
    scheme="tosa_double_round",
)

TOSA = Profile(
    name="tosa",
    title="TOSA RESCALE, SINGLE_ROUND",
    summary="RESCALE with scale32 and SINGLE_ROUND. TOSA does not quantize from float.",
    source="TOSA 1.0, reference model 1.1.0d",
    operations={Operation.REQUANTIZE: _SINGLE},
)

TOSA_DOUBLE_ROUND = Profile(
    name="tosa_double_round",
    title="TOSA RESCALE, DOUBLE_ROUND",
    summary="RESCALE with scale32 and DOUBLE_ROUND. TOSA does not quantize from float.",
    source="TOSA 1.0, reference model 1.1.0d, extension EXT-DOUBLEROUND",
    operations={Operation.REQUANTIZE: _DOUBLE},
)
