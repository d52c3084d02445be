"""oneDNN Graph: a reciprocal, and the zero point added in f32 before rounding."""

from __future__ import annotations

from dataclasses import replace

from core.profiles.rule import (
    DEQUANTIZE,
    Operation,
    OperationRule,
    Profile,
    Quotient,
    Rounding,
    ZeroPoint,
    ZeroPointRange,
)

_STORAGES = ("i8", "u8", "f8E4M3FN", "f8E5M2")

ONEDNN = Profile(
    name="onednn",
    title="oneDNN Graph",
    summary="Quantize and Dequantize of the Graph API, as the CPU engine computes them.",
    source="oneDNN 3.13.2, Graph API, CPU",
    operations={
        Operation.QUANTIZE: OperationRule(
            formula="RNE(clamp(f32(f32(x * f32(1 / s)) + f32(z)), lo, hi)); to small floats: f32(x * f32(1 / s)) to "
            "f16, and that to the small float",
            precision="multiplication by the f32 reciprocal, then addition, each rounded to f32",
            rounding=Rounding.NEAREST_EVEN,
            zero_point=ZeroPoint.BEFORE_ROUNDING,
            saturation="infinities saturate; small floats do not saturate",
            nan="lo (oneDNN's own answer depends on the instruction set)",
            quotient=Quotient.RECIPROCAL,
            storages=_STORAGES,
            zero_points=ZeroPointRange.INT32,
            float_storage="onednn",
        ),
        Operation.DEQUANTIZE: replace(
            DEQUANTIZE, storages=_STORAGES, zero_points=ZeroPointRange.INT32, float_storage="onednn"
        ),
    },
)
