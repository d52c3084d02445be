"""StableHLO's uniform_quantize of a quantized operand: merged scale and zero point."""

from __future__ import annotations

from requant.kernels.convert.requantize.rules import FloatRule
from requant.schemes import float_factor
from requant.schemes.scheme import Factor

STABLEHLO = float_factor.f32_product(
    name="stablehlo",
    summary="StableHLO: scale and zero point of both sides merged into one of each, f32, ties to even.",
    source="stablehlo-legalize-quant-to-math on StableHLO's interpreter",
    formula="RNE(f32(f32(f32(q) * f) + f32(z_out - z_in * r)))",
    where="f = f32(r) the f32 m * 2^-shift; z_out - z_in * r in f64, with r as it was before it became f; given "
    "multipliers are their own r",
    factor=Factor.F64,
    stage=float_factor.f32_stage(FloatRule.F32_OFFSET),
)

SCHEMES = (STABLEHLO,)
