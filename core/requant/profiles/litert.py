"""LiteRT: rounding away from zero from float, 31-bit fixed point between integers."""

from __future__ import annotations

from dataclasses import replace

from requant.formats.rounding import Rounding
from requant.formats.rules import Difference, Overflow, Quotient
from requant.profiles.rule import (
    DEQUANTIZE,
    NO_NAN,
    Accumulator,
    Addition,
    AddRule,
    NanResult,
    Operation,
    OperationRule,
    ProductRule,
    Profile,
    SumOverflow,
    TypeRules,
    ZeroPoint,
    ZeroPointRange,
    scheme_rule,
)
from requant.schemes import Factor, xnnpack
from requant.schemes import litert as schemes

_STORAGES = ("i4", "u4", "i8", "u8", "i16", "u16", "i32")
_BYTES = ("i8", "u8")
_REQUANTIZED = ("i8", "u8", "i16", "u16", "i32")


_QUANTIZE = OperationRule(
    formula="min(max(int32(RNA(f32(x / f32(s)))) + z, lo), hi)",
    precision="true division in f32; conversion to int32 gives -2^31 for everything that does not fit; the addition of "
    "z wraps in int32",
    rounding=Rounding.NEAREST_AWAY,
    zero_point=ZeroPoint.AFTER_ROUNDING,
    saturation="clamp after the int32 addition: above 2^31, and for +infinity, the result is lo (hi when z < 0)",
    nan="as -2^31: lo when z >= 0, hi when z < 0",
    overflow=Overflow.INDEFINITE,
    nan_result=NanResult.INDEFINITE,
    storages=_STORAGES,
)
_DEQUANTIZE = OperationRule(
    formula="f32(f64(f32(s)) * f64(q - z))",
    precision="exact difference, one f64 multiplication, one rounding to f32; equal to f32(f32(q - z) * f32(s)) for 8- "
    "and 16-bit storage",
    rounding=Rounding.NEAREST_EVEN,
    zero_point=ZeroPoint.BEFORE_SCALING,
    saturation="none",
    nan=NO_NAN,
    difference=Difference.DOUBLE,
    storages=_STORAGES,
    symmetric=("i16",),
)
_DOUBLE = scheme_rule(
    schemes.LITERT,
    storages=_REQUANTIZED,
    zero_points=ZeroPointRange.INT32,
    symmetric_pairs=("i16 to i16",),
)
_SINGLE = scheme_rule(
    schemes.LITERT_SINGLE_ROUNDING,
    storages=_REQUANTIZED,
    zero_points=ZeroPointRange.INT32,
    symmetric_pairs=("i16 to i16",),
)
# XNNPACK takes accumulators and numbers of 8 bits; other pairs run the reference kernel.
_CONVERTED = ("i8 to i8", "u8 to u8")
_UNDELEGATED = ("i8 to i16", "i16 to i8", "i16 to i16", "i16 to i32", "i32 to i16")
_CVT8 = scheme_rule(xnnpack.XNNPACK_CVT8, storages=_BYTES, granularities=("per_tensor",), type_rules=TypeRules.XNNPACK)
_XNNPACK = scheme_rule(
    xnnpack.XNNPACK_FP32,
    storages=("i8", "u8", "i16", "i32"),
    zero_points=ZeroPointRange.INT32,
    pairs=("i32 to i8", "i32 to u8", *_CONVERTED, *_UNDELEGATED),
    variants={
        **dict.fromkeys(_CONVERTED, _CVT8),
        **dict.fromkeys(_UNDELEGATED, _DOUBLE),
    },
)

# Their C++ sums in int32, or in int64 with 16-bit inputs and a 64-bit bias, or none, and does not define what happens
# beyond.
_INT64 = ProductRule(
    operator="CONV_2D, DEPTHWISE_CONV_2D", overflow=SumOverflow.ERROR, scheme=schemes.LITERT_INT64.name
)
_FULLY_CONNECTED = ProductRule(operator="FULLY_CONNECTED", overflow=SumOverflow.ERROR, scheme=schemes.LITERT_FLOAT.name)
_BATCHED_INT64 = replace(_INT64, operator="BATCH_MATMUL", factor=Factor.F64_OF_F32_PRODUCT)


def _products(scheme: str) -> dict[str, ProductRule]:
    """The reference kernels. FULLY_CONNECTED has no fixed point; BATCH_MATMUL and the convolutions have."""
    batched = replace(_BATCHED_INT64, scheme=scheme, variants={"i64": _BATCHED_INT64})
    return {
        "matmul": replace(_FULLY_CONNECTED, variants={"batched": batched}),
        "conv2d": replace(_INT64, scheme=scheme, variants={"i64": _INT64}),
    }


_ADD = AddRule(operator="ADD", addition=Addition.FIXED_POINT, scheme=schemes.LITERT.name)
# XNNPACK takes 8 bits, and signed weights without a zero point. The rest goes to LiteRT's optimized kernels, of which
# those for sums of 64 bits, and BATCH_MATMUL, compute as the reference ones.
_OPTIMIZED = replace(_FULLY_CONNECTED, scheme=schemes.ARM_VECTOR.name)
_OF_XNNPACK = ProductRule(operator="FULLY_CONNECTED", overflow=SumOverflow.WRAP, scheme=xnnpack.XNNPACK_FP32.name)

LITERT = Profile(
    name="litert",
    title="LiteRT reference kernels",
    summary="QUANTIZE, DEQUANTIZE and integer requantization as LiteRT's reference kernels compute them, with the "
    "double rounding of every released build.",
    source="LiteRT f67457790c9c (ai-edge-litert 2.3.0), BUILTIN_REF",
    operations={
        Operation.QUANTIZE: _QUANTIZE,
        Operation.DEQUANTIZE: _DEQUANTIZE,
        Operation.REQUANTIZE: _DOUBLE,
    },
    products=_products(schemes.LITERT.name),
    addition=_ADD,
)

LITERT_SINGLE_ROUNDING = replace(
    LITERT,
    name="litert_single_rounding",
    title="LiteRT built with TFLITE_SINGLE_ROUNDING",
    summary="As litert, with one rounding in the multiplication by a quantized multiplier.",
    source="LiteRT f67457790c9c, TFLITE_SINGLE_ROUNDING=1",
    operations={**LITERT.operations, Operation.REQUANTIZE: _SINGLE},
    products=_products(schemes.LITERT_SINGLE_ROUNDING.name),
    addition=replace(_ADD, scheme=schemes.LITERT_SINGLE_ROUNDING.name),
)

LITERT_XNNPACK = Profile(
    name="litert_xnnpack",
    title="LiteRT as installed, with XNNPACK",
    summary="QUANTIZE and DEQUANTIZE of 8-bit tensors as the default interpreter runs them, delegated to XNNPACK, "
    "whose threads take subnormals for 0; int32 accumulators to 8 bits as its convolutions and FULLY_CONNECTED do, "
    "QUANTIZE between 8 bits of one sign as its conversion does, and between other integers as the reference kernel, "
    "which it leaves them to. int8 to uint8 and back, and 8-bit factors outside of 2^-8 to 2^7, are not defined: there "
    "the result depends on an element's place.",
    source="ai-edge-litert 2.3.0, default resolver, XNNPACK delegate, x86-64",
    operations={
        Operation.QUANTIZE: OperationRule(
            formula="RNE(clamp(f32(x * f32(1 / s)), lo - z, hi - z)) + z",
            precision="multiplication by the f32 reciprocal; subnormal x and reciprocals are treated as 0, subnormal "
            "scales are refused",
            rounding=Rounding.NEAREST_EVEN,
            zero_point=ZeroPoint.AFTER_ROUNDING,
            saturation="infinities saturate, but become NaN where s > 2^126, whose reciprocal is treated as 0",
            nan="hi",
            quotient=Quotient.RECIPROCAL,
            nan_result=NanResult.HIGHEST,
            storages=_BYTES,
            granularities=("per_tensor",),
            type_rules=TypeRules.XNNPACK,
            flushes=True,
        ),
        Operation.DEQUANTIZE: replace(
            DEQUANTIZE, storages=_BYTES, granularities=("per_tensor",), type_rules=TypeRules.XNNPACK
        ),
        Operation.REQUANTIZE: _XNNPACK,
    },
    products={
        "matmul": replace(
            _OF_XNNPACK,
            accumulator=Accumulator.I32,
            variants={
                "batched": replace(
                    _OF_XNNPACK,
                    operator="BATCH_MATMUL",
                    variants={
                        "i64": _BATCHED_INT64,
                        "undelegated i32": replace(_BATCHED_INT64, scheme=schemes.LITERT.name),
                    },
                ),
                "i64": _FULLY_CONNECTED,
                "undelegated i32": replace(_OPTIMIZED, factor=Factor.F64_OF_F32_PRODUCT),
                "undelegated i32 per_axis": _OPTIMIZED,
            },
        ),
        "conv2d": replace(
            _OF_XNNPACK,
            operator=_INT64.operator,
            variants={"i64": _INT64, "undelegated i32": replace(_OPTIMIZED, operator="CONV_2D")},
        ),
    },
    addition=AddRule(operator="ADD", addition=Addition.COMMON_SCALE),
)

PROFILES = (
    LITERT,
    LITERT_SINGLE_ROUNDING,
    LITERT_XNNPACK,
)
