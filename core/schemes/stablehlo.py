"""StableHLO's uniform_quantize of a quantized operand: merged scale and zero point."""

from __future__ import annotations

from core.formats.rounding import Rounding
from core.kernels.convert.requantize.rules import FloatRule
from core.schemes import float_factor
from core.schemes.scheme import Factor, Scheme

STABLEHLO = Scheme(
    name="stablehlo",
    summary="StableHLO: scale and zero point of both sides merged to one of each, f32, ties to even.",
    derivation="m of 24 bits and shift with f32(d) = m * 2^-shift exactly",
    source="stablehlo-legalize-quant-to-math on StableHLO's interpreter",
    convention=float_factor.CONVENTION,
    formula="RNE(f32(f32(f32(q) * f) + f32(z_out - z_in * r)))",
    where="f = f32(r) the f32 m * 2^-shift; z_out - z_in * r in f64, with r as it was before it became f; given "
    "multipliers are their own r",
    rounding=Rounding.NEAREST_EVEN,
    factor=Factor.F64,
    multiplier_of=float_factor.of_f32,
    right_shift=float_factor.right_shift,
    multipliers=float_factor.F32_MULTIPLIERS,
    shifts=float_factor.F32_SHIFTS,
    stage=float_factor.f32_stage(FloatRule.F32_OFFSET),
)

SCHEMES = (STABLEHLO,)
