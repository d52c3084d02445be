"""StableHLO: the zero point takes part in the rounding."""

from __future__ import annotations

from core.profiles.rule import DEQUANTIZE, Operation, OperationRule, Profile, Rounding, ZeroPoint

STABLEHLO = Profile(
    name="stablehlo",
    title="StableHLO",
    summary="uniform_quantize and uniform_dequantize as the StableHLO specification and its interpreter compute "
    "them: the zero point takes part in the rounding.",
    source="StableHLO specification 1.20, quantized element types",
    operations={
        Operation.QUANTIZE: OperationRule(
            formula="RNE(clamp(f32(f32(x / f32(s)) + f32(z)), f32(lo), f32(hi)))",
            precision="true division, then addition, each rounded to f32",
            rounding=Rounding.NEAREST_EVEN,
            zero_point=ZeroPoint.BEFORE_ROUNDING,
            saturation="clamp in f32 before rounding; infinities saturate",
            nan="0",
        ),
        Operation.DEQUANTIZE: DEQUANTIZE,
    },
)
