"""RISC-V's narrowing fixed-point clip, vnclip, in its four rounding modes (vxrm)."""

from __future__ import annotations

from dataclasses import replace

from requant.errors import ParameterError
from requant.formats.rounding import Rounding
from requant.kernels.convert.requantize.rules import FixedPointRule, Requirement
from requant.schemes.scheme import INT32_MAX, Factor, FixedPoint, Multiplier, Prepared, Scheme, normalized

_BITS, _LARGEST_SHIFT, _PRODUCT_BITS = 31, 62, 62


def _derive(factor: float) -> Multiplier:
    """factor ~ m * 2^-shift, m odd or 0, of at most 31 bits."""
    if factor < 0:
        raise ParameterError("vnclip's multipliers are at least 0; the factor is negative")
    multiplier, exponent = normalized(factor, _BITS)
    if multiplier == 0:
        return Multiplier(0, 0)
    shift = _BITS - exponent
    shared = (multiplier & -multiplier).bit_length() - 1
    shared = min(shared, max(shift, 0))
    if not 0 <= shift - shared <= _LARGEST_SHIFT:
        raise ParameterError(f"{factor!r} needs shift {shift - shared}, and vnclip's are 0 to {_LARGEST_SHIFT} here")
    return Multiplier(multiplier >> shared, shift - shared)


_NEAREST_UP = FixedPoint(
    rule=FixedPointRule.NEAREST_UP,
    prepare=lambda given: Prepared(given.multiplier, given.shift, _PRODUCT_BITS - given.multiplier.bit_length()),
    demands={Requirement.VALUE: "the product with the multiplier must fit 62 bits and a sign"},
)

VNCLIP_RNU = Scheme(
    name="vnclip_rnu",
    summary="RISC-V vnclip and vnclipu, vxrm = rnu: the product shifted right, ties up. With m = 1 vnclip alone.",
    derivation="d = f * 2^e, 0.5 <= f < 1: m = RNA(f * 2^31), shift = 31 - e; then both without the factors of 2 that "
    "they share, so that m is 1 where d is a power of two; an error where shift is not 0 to 62",
    source="The RISC-V Instruction Set Manual, volume I, Vector Narrowing Fixed-Point Clip Instructions",
    convention="m * 2^-shift",
    formula="floor((v * m + 2^(shift-1)) / 2^shift) + z_out",
    rounding=Rounding.SINGLE,
    factor=Factor.F64_OF_F32,
    multiplier_of=_derive,
    right_shift=lambda shift: shift,
    multipliers=(0, INT32_MAX),
    shifts=(0, _LARGEST_SHIFT),
    stage=_NEAREST_UP,
)
VNCLIP_RNE = replace(
    VNCLIP_RNU,
    name="vnclip_rne",
    summary="RISC-V vnclip and vnclipu, vxrm = rne: the product shifted right, ties to even.",
    formula="RNE(v * m / 2^shift) + z_out",
    rounding=Rounding.NEAREST_EVEN,
    stage=replace(_NEAREST_UP, rule=FixedPointRule.NEAREST_EVEN),
)
VNCLIP_RDN = replace(
    VNCLIP_RNU,
    name="vnclip_rdn",
    summary="RISC-V vnclip and vnclipu, vxrm = rdn: the product shifted right, down.",
    formula="floor(v * m / 2^shift) + z_out",
    rounding=Rounding.FLOOR,
    stage=replace(_NEAREST_UP, rule=FixedPointRule.FLOOR),
)
VNCLIP_ROD = replace(
    VNCLIP_RNU,
    name="vnclip_rod",
    summary="RISC-V vnclip and vnclipu, vxrm = rod: the product shifted right, to odd where bits are lost.",
    formula="u + z_out",
    where="u = floor(v * m / 2^shift), and its last bit is 1 if the remainder is not 0",
    rounding=Rounding.ODD,
    stage=replace(_NEAREST_UP, rule=FixedPointRule.ODD),
)

SCHEMES = (VNCLIP_RNU, VNCLIP_RNE, VNCLIP_RDN, VNCLIP_ROD)
