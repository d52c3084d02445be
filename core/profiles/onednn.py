"""oneDNN Graph: a reciprocal, and the zero point added in f32 before rounding."""

from __future__ import annotations

from dataclasses import replace

from core.profiles.cast import CastRule, FloatOverflow, NanCode
from core.profiles.integer_rule import Addition, AddRule, ProductRule, SumOverflow
from core.profiles.rule import (
    DEQUANTIZE,
    NO_NAN,
    Operation,
    OperationRule,
    Profile,
    Quotient,
    ZeroPoint,
    ZeroPointRange,
)
from core.rounding import Rounding

_FLOATS = ("f8E4M3FN", "f8E5M2")
_STORAGES = ("i8", "u8", *_FLOATS)

ONEDNN = Profile(
    name="onednn",
    title="oneDNN Graph",
    summary="Quantize and Dequantize of the Graph API, as the CPU engine computes them. Requantize is a Dequantize and "
    "a Quantize, as the Graph API states int8 models; an int32 accumulator enters it with the product of the scales.",
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
        Operation.REQUANTIZE: OperationRule(
            formula="RNE(clamp(f32(f32(f32(f32(q - z_in) * s_in) * f32(1 / s_out)) + f32(z_out)), lo, hi))",
            precision="q - z_in in int32 (wraps for 32-bit storage); each step in f32",
            rounding=Rounding.NEAREST_EVEN,
            zero_point=ZeroPoint.BEFORE_ROUNDING,
            saturation="clamp in f32 before rounding",
            nan=NO_NAN,
            storages=("i8", "u8", "i32"),
            pairs=tuple(f"{source} to {target}" for source in ("i8", "u8", "i32") for target in ("i8", "u8")),
            zero_points=ZeroPointRange.INT32,
        ),
    },
    products={
        "matmul": ProductRule(operator="MatMul of the Graph API, int8", overflow=SumOverflow.WRAP, scheme=None),
        "conv2d": ProductRule(operator="Convolution of the Graph API, int8", overflow=SumOverflow.WRAP, scheme=None),
    },
    addition=AddRule(operator="Dequantize, Add, Quantize", addition=Addition.THROUGH_REAL),
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
