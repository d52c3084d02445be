"""StableHLO: the zero point takes part in the rounding, and everything is computed in the expressed type."""

from __future__ import annotations

from requant.formats.rounding import Rounding
from requant.profiles.cast import FINITE, CastRule, FiniteNan, FloatOverflow, NanCode
from requant.profiles.rule import (
    NO_NAN,
    Addition,
    AddRule,
    NanResult,
    Operation,
    OperationRule,
    ProductRule,
    Profile,
    Steps,
    SumOverflow,
    TypeRules,
    ZeroPoint,
    scheme_rule,
)
from requant.schemes import stablehlo as schemes

_EXPRESSED = ("f16", "bf16", "f32", "f64")
_FORMATS = (
    "f16", "bf16", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ", "f8E4M3", "f8E3M4", "f8E4M3B11FNUZ", *FINITE
)  # fmt: skip
_STORAGES = tuple(f"{sign}{width}" for sign in "iu" for width in (2, 4, 8, 16, 32))

STABLEHLO = Profile(
    name="stablehlo",
    title="StableHLO",
    summary="uniform_quantize and uniform_dequantize as the StableHLO specification and its interpreter compute them: "
    "the zero point takes part in the rounding. uniform_quantize of a quantized operand as "
    "stablehlo-legalize-quant-to-math lowers it.",
    source="StableHLO specification 1.20, quantized element types",
    operations={
        Operation.QUANTIZE: OperationRule(
            formula="RNE(clamp(E(E(x / E(s)) + E(z)), E(lo), E(hi)))",
            precision="true division, then addition, each rounded to the expressed type E",
            rounding=Rounding.NEAREST_EVEN,
            zero_point=ZeroPoint.BEFORE_ROUNDING,
            saturation="clamp in E before rounding, then a saturating conversion; infinities saturate",
            nan="0",
            steps=Steps.EXPRESSED,
            nan_result=NanResult.ZERO,
            expressed=_EXPRESSED,
            storages=_STORAGES,
            type_rules=TypeRules.STABLEHLO,
        ),
        Operation.DEQUANTIZE: OperationRule(
            formula="E(E(q - z) * E(s))",
            precision="q - z in int32 (wraps for 32-bit storage), one conversion to E, one multiplication in E",
            rounding=Rounding.NEAREST_EVEN,
            zero_point=ZeroPoint.BEFORE_SCALING,
            saturation="none",
            nan=NO_NAN,
            steps=Steps.EXPRESSED,
            expressed=_EXPRESSED,
            storages=_STORAGES,
            type_rules=TypeRules.STABLEHLO,
        ),
        Operation.REQUANTIZE: scheme_rule(
            schemes.STABLEHLO,
            saturation="clamp in f32 to f32(lo) and f32(hi), then a saturating conversion",
            zero_point=ZeroPoint.BEFORE_ROUNDING,
            storages=_STORAGES,
            type_rules=TypeRules.STABLEHLO,
        ),
    },
    products={
        "matmul": ProductRule(operator="dot_general", overflow=SumOverflow.WRAP, scheme=schemes.STABLEHLO.name),
        "conv2d": ProductRule(operator="convolution", overflow=SumOverflow.WRAP, scheme=schemes.STABLEHLO.name),
    },
    addition=AddRule(operator="add", addition=Addition.TO_OUTPUT_SCALE, scheme=schemes.STABLEHLO.name),
    casts=CastRule(
        authority="StableHLO's interpreter",
        saturation="overflow and infinity give infinity where the format has one, else NaN; f4 and f6 saturate, but "
        "infinities give zero with the sign there",
        nan="a NaN with the sign: the highest mantissa bits of its payload and the highest one; f4 and f6: zero with "
        "the sign",
        notes="convert. Not f8E8M0FNU, where the interpreter writes a sign that the format does not have.",
        formats=_FORMATS,
        overflow=FloatOverflow.NON_SATURATING,
        nans={"": NanCode.QUIET_PAYLOAD},
        finite_nan=FiniteNan.SAME_ZERO,
        finite_infinity_zero=True,
        f64_once=_FORMATS,
    ),
)

PROFILES = (STABLEHLO,)
