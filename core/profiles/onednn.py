"""oneDNN Graph: a reciprocal, and the zero point added in f32 before rounding."""

from __future__ import annotations

from dataclasses import replace

from core.profiles.cast import CastRule, FloatOverflow, NanCode
from core.profiles.rounding import Rounding
from core.profiles.rule import (
    DEQUANTIZE,
    Operation,
    OperationRule,
    Profile,
    Quotient,
    ZeroPoint,
    ZeroPointRange,
)

_FLOATS = ("f8E4M3FN", "f8E5M2")
_STORAGES = ("i8", "u8", *_FLOATS)

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
        ),
        Operation.DEQUANTIZE: replace(DEQUANTIZE, storages=_STORAGES, zero_points=ZeroPointRange.INT32),
    },
    casts=CastRule(
        authority="oneDNN",
        saturation="overflow and infinity give infinity in f8E5M2, NaN in f8E4M3FN",
        nan="a NaN with the sign: the highest mantissa bits of its payload and the highest one",
        notes="What Quantize with scale 1 gives; the Graph API has no cast to these types. x is rounded to f16 first, "
        "and -0 becomes 0.",
        formats=_FLOATS,
        sources=("f32",),
        overflow=FloatOverflow.NON_SATURATING,
        nans={"": NanCode.QUIET_PAYLOAD},
        through_f16=True,
    ),
)
