"""oneDNN Graph: a reciprocal, and the zero point added in f32 before rounding."""

from __future__ import annotations

from dataclasses import replace

from requant.formats.rounding import Rounding
from requant.formats.rules import Difference, Quotient
from requant.profiles.cast import CastRule, FloatOverflow, NanCode
from requant.profiles.rule import (
    DEQUANTIZE,
    NO_NAN,
    Addition,
    AddRule,
    Operation,
    OperationRule,
    ProductRule,
    Profile,
    SumOverflow,
    ZeroPoint,
    ZeroPointRange,
)

_FLOATS = ("f8E4M3FN", "f8E5M2")
_STORAGES = ("i8", "u8", *_FLOATS)
_UNIT_TOLERANCE = 1e-6
"""The eps of the pass remove_quant_data_with_no_effect. Parameters that are operands are not known to it."""
_LEFT_OUT = "scales that are all within 1e-6 of 1 (in f32) are dropped"

ONEDNN = Profile(
    name="onednn",
    title="oneDNN Graph",
    summary="Quantize and Dequantize of the Graph API, as the CPU engine computes them. Requantize is a Dequantize and "
    "a Quantize, as the Graph API states int8 models; an int32 accumulator enters it with the product of the scales.",
    source="oneDNN 3.13.2, Graph API, CPU, ONEDNN_MAX_CPU_ISA=AVX2",
    operations={
        Operation.QUANTIZE: OperationRule(
            formula="RNE(clamp(f32(f32(x * f32(1 / s)) + f32(z)), lo, hi)); to small floats: f32(x * f32(1 / s)) to "
            "f16, and that to the small float",
            precision=f"multiplication by the f32 reciprocal, then addition, each rounded to f32; {_LEFT_OUT}",
            rounding=Rounding.NEAREST_EVEN,
            zero_point=ZeroPoint.BEFORE_ROUNDING,
            saturation="infinities saturate; small floats do not saturate",
            nan="lo, as up to ONEDNN_MAX_CPU_ISA=AVX2 but SSE41",
            quotient=Quotient.RECIPROCAL,
            storages=_STORAGES,
            zero_points=ZeroPointRange.INT32,
            unit_tolerance=_UNIT_TOLERANCE,
        ),
        Operation.DEQUANTIZE: replace(
            DEQUANTIZE,
            formula="f32(f32(f32(q) - f32(z)) * s); of small floats f32(q * s) + 0",
            precision=f"each step in f32; {_LEFT_OUT}",
            difference=Difference.FLOATS,
            storages=_STORAGES,
            zero_points=ZeroPointRange.INT32,
            float_zero_point=True,
            unit_tolerance=_UNIT_TOLERANCE,
        ),
        Operation.REQUANTIZE: OperationRule(
            formula="RNE(clamp(f32(f32(f32(f32(f32(q) - f32(z_in)) * s_in) * f32(1 / s_out)) + f32(z_out)), lo, hi))",
            precision=f"each step in f32; {_LEFT_OUT}",
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

PROFILES = (ONEDNN,)
