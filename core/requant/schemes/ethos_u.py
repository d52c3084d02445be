"""Arm Ethos-U as its compiler Vela programs it: an unsigned 32-bit scale and a right shift."""

from __future__ import annotations

from requant.formats.rounding import Rounding
from requant.kernels.convert.requantize.rules import FixedPointRule, Requirement
from requant.schemes.litert import FITS_INT32, FITS_INT48, at_least_zero, reduced_multiplier
from requant.schemes.scheme import Factor, FixedPoint, Multiplier, Prepared, Scheme, significand

_NO_SCALE = Multiplier(0, 16)


def _quantise_scale(factor: float) -> Multiplier:
    """Vela's quantise_scale: factor ~ m * 2^-shift. m is not renormalized: it can be 2^31, as the field is unsigned."""
    at_least_zero(factor)
    multiplier, exponent = significand(factor, 31)
    shift = 31 - exponent
    return Multiplier(multiplier, shift) if 0 <= shift < 64 else _NO_SCALE


def _reduced_quantise_scale(factor: float) -> Multiplier:
    """Vela's reduced_quantise_scale: the same with 15 bits, for 48-bit accumulators."""
    full = _quantise_scale(factor)
    return Multiplier(reduced_multiplier(full.multiplier), full.shift - 16)


def _prepare(multiplier: Multiplier, width: int) -> Prepared:
    # No product reaches 2^62, so that a right shift of 63 leaves nothing.
    return Prepared(0, 62, width) if multiplier.shift > 62 else Prepared(multiplier.multiplier, multiplier.shift, width)


ETHOS_U = Scheme(
    name="ethos_u",
    summary="Ethos-U: 32-bit scale, applied with the hardware's NATURAL rounding. Its TFL rounding computes as litert.",
    derivation="d = f * 2^e, 0.5 <= f < 1: m = RNA(f * 2^31), which can be 2^31, shift = 31 - e; where shift is not 0 "
    "to 63, m = 0, shift = 16",
    source="ethos-u-vela 5.2.0 ethosu/vela/scaling.py quantise_scale",
    convention="m * 2^-shift",
    formula="floor((v * m + 2^(shift-1)) / 2^shift) + z_out",
    rounding=Rounding.SINGLE,
    factor=Factor.F64_OF_F32,
    multiplier_of=_quantise_scale,
    right_shift=lambda shift: shift,
    multipliers=(0, 1 << 31),
    shifts=(0, 63),
    stage=FixedPoint(
        rule=FixedPointRule.NEAREST_UP,
        prepare=lambda given: _prepare(given, 31),
        demands={Requirement.VALUE: FITS_INT32},
    ),
)
ETHOS_U_REDUCED = Scheme(
    name="ethos_u_reduced",
    summary="Ethos-U with 48-bit accumulators (16-bit activations): 16-bit scale.",
    derivation="m and shift as ethos_u; then floor((m + 2^15) / 2^16), at most 2^15 - 1, and shift - 16",
    source="ethos-u-vela 5.2.0 ethosu/vela/scaling.py reduced_quantise_scale",
    convention="m * 2^-shift",
    formula="floor((v * m + 2^(shift-1)) / 2^shift) + z_out",
    rounding=Rounding.SINGLE,
    factor=Factor.F64_OF_F32,
    multiplier_of=_reduced_quantise_scale,
    right_shift=lambda shift: shift,
    multipliers=(0, 0x7FFF),
    shifts=(0, 47),
    stage=FixedPoint(
        rule=FixedPointRule.NEAREST_UP,
        prepare=lambda given: _prepare(given, 47),
        demands={Requirement.VALUE: FITS_INT48},
    ),
)

SCHEMES = (ETHOS_U, ETHOS_U_REDUCED)
