"""ONNX: the zero point is added after rounding; as onnxruntime computes it, and as the reference evaluator does."""

from __future__ import annotations

from dataclasses import replace

from requant.formats.rounding import Rounding
from requant.formats.rules import Difference, Overflow
from requant.profiles.cast import (
    F8_ONNX,
    FINITE,
    SCALE,
    CastRule,
    FloatOverflow,
    NanCode,
    ScaleRange,
    Slip,
)
from requant.profiles.rule import (
    DEQUANTIZE,
    Addition,
    AddRule,
    NanResult,
    Operation,
    OperationRule,
    ProductRule,
    Profile,
    Steps,
    SumOverflow,
    ZeroPoint,
    scheme_rule,
)
from requant.schemes import onnx as schemes

_EXPRESSED = ("f32", "f16", "bf16")
_GRANULARITIES = ("per_tensor", "per_axis", "sub_channel")
_INTEGERS = ("i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16", "i32")
_FLOATS = (*F8_ONNX, *FINITE)
_STORAGES = (*_INTEGERS, *_FLOATS)

_QUANTIZE = OperationRule(
    formula="clamp(RNE(f32(x / s)) + z, lo, hi), s = E(scale); to small floats: cast(f32(x / s)), saturating",
    precision="f16 and bf16 are converted to f32; true division in f32",
    rounding=Rounding.NEAREST_EVEN,
    zero_point=ZeroPoint.AFTER_ROUNDING,
    saturation="infinities and huge values saturate",
    nan="lo; NaN in small floats that have one, else 0 of the opposite sign",
    expressed=_EXPRESSED,
    storages=_STORAGES,
    granularities=_GRANULARITIES,
    short_blocks=True,
)
_TO_1_31 = replace(
    _QUANTIZE,
    saturation="infinities and huge values saturate; but in f16, in blocks along another axis than the last, to 2 "
    "bits, and to 4 bits where an element shares its byte with none of the same run of one scale, they and NaN convert "
    "as in the reference evaluator",
    split_bytes=True,
)
_SCALAR_LOOPS = replace(
    _QUANTIZE,
    saturation="values outside int32 become -2^31, as on x86; z is added wrapping; then clamped",
    nan="lo when z >= 0, else hi",
    overflow=Overflow.INDEFINITE,
    nan_result=NanResult.INDEFINITE,
)
_REFERENCE = replace(
    _QUANTIZE,
    formula="clip(int32(RNE(E(x / s))) + z, lo, hi), s = E(scale)",
    precision="division in the expressed type E; conversion to int32 gives -2^31 for everything that does not fit (as "
    "x86 does); the addition of z wraps in int32",
    saturation="clip after the wrapping addition: beyond int32 the result is lo when z >= 0, else hi",
    nan="lo when z >= 0, else hi; NaN in small floats that have one",
    steps=Steps.EXPRESSED,
    overflow=Overflow.INDEFINITE,
    nan_result=NanResult.INDEFINITE,
)
_REFERENCE_ADDS_ZERO = replace(_REFERENCE, float_zero_point=True)
_DEQUANTIZE = replace(
    DEQUANTIZE,
    expressed=_EXPRESSED,
    storages=_STORAGES,
    granularities=_GRANULARITIES,
    short_blocks=True,
    symmetric=("i32", *_FLOATS),
)

_REFERENCE_INT32 = replace(
    _DEQUANTIZE,
    formula="E((f32(q) - z) * s), s = E(scale)",
    precision="q is rounded to f32 first, the rest is in f64 and rounded once; to bf16 by way of f32",
    difference=Difference.DOUBLE_OF_F32,
)

_CASTS = CastRule(
    authority="onnxruntime",
    saturation="to 8 bits overflow and infinity give the largest value with the sign; with saturate=false infinity "
    "where the format has one, else NaN, but f8E4M3FN gives 448 for 480 <= |x| < 496 and f8E5M2 gives NaN for "
    "61440 <= |x| < 65536. f4 and f6 always saturate, f16 and bf16 never",
    nan="a NaN with the sign: f8E5M2 all mantissa bits, f16 and bf16 the highest; f4 and f6: zero of the opposite sign",
    scale="round x up, down or to the nearest power of two, ties up; x < 2^-127 (zero and all negatives) gives 0x00, "
    "x > 2^127 gives 0xFE; with saturate=false both give 0xFF, as NaN does. 2^-127 and 2^127 are compared with x "
    "before it is rounded",
    notes="f4 and f6, which onnxruntime lacks, follow the ReferenceEvaluator. Not followed: in onnxruntime "
    "the NaNs of f32 that stand in a group of eight keep their payload when cast to f16, and those of bf16 lose their "
    "sign when cast to 8 bits with saturate=false.",
    formats=("f16", "bf16", *F8_ONNX, *FINITE, SCALE),
    overflow=FloatOverflow.SATURATING,
    chosen_saturation=(*F8_ONNX, SCALE),
    nans={"f8E5M2": NanCode.ONES},
    slips={"f8E4M3FN": Slip(480.0, 496.0, 0x7E), "f8E5M2": Slip(61440.0, 65536.0, 0x7F)},
    roundings={SCALE: (Rounding.CEILING, Rounding.FLOOR, Rounding.NEAREST_UP)},
    scale_range=ScaleRange.BEFORE_ROUNDING,
)
_REFERENCE_CASTS = replace(
    _CASTS,
    authority="the ReferenceEvaluator",
    saturation="to 8 bits overflow and infinity give the largest value with the sign; with saturate=false infinity "
    "where the format has one, else NaN. f4 and f6 always saturate, f16 and bf16 never",
    nan="a NaN with the sign: the highest mantissa bit only; to f16 from f32 and f64 the highest bits of its payload, "
    "at least 1; f4 and f6: zero of the opposite sign",
    scale="E and M are the exponent and mantissa field of x as an f32, the sign is ignored. Up: E + (M > 0). Down: E. "
    "Nearest: E + (M > 2^22, or M = 2^22 and E > 0). Above 254: 0xFE, with saturate=false 0xFF. Infinity and NaN: 0xFF",
    notes="",
    nans={"f16": NanCode.PAYLOAD, "bf16 f16": NanCode.QUIET},
    f64_once=("f16",),
    slips={},
    scale_range=ScaleRange.AFTER_ROUNDING,
)


def _products(scheme: str) -> dict[str, ProductRule]:
    """Both sum in int32, modulo 2^32."""
    return {
        "matmul": ProductRule(operator="QLinearMatMul, MatMulInteger", overflow=SumOverflow.WRAP, scheme=scheme),
        "conv2d": ProductRule(operator="QLinearConv, ConvInteger", overflow=SumOverflow.WRAP, scheme=scheme),
    }


_ADD = AddRule(operator="DequantizeLinear, Add, QuantizeLinear", addition=Addition.THROUGH_REAL)

ONNX = Profile(
    name="onnx",
    title="ONNX, as onnxruntime to 1.31",
    summary="QuantizeLinear, DequantizeLinear and the output of QLinearMatMul and QLinearConv as onnxruntime's CPU "
    "provider computes them up to 1.31: the zero point is added after rounding. bf16, which onnxruntime lacks, follows "
    "the rule of f32. `onnx_1_32` is that of newer versions.",
    source="onnxruntime 1.31.1, ONNX opset 21 and newer",
    operations={
        Operation.QUANTIZE: replace(
            _TO_1_31, variants=dict.fromkeys(("i2", "u2", "f16", "sub_channel_outer"), _SCALAR_LOOPS)
        ),
        Operation.DEQUANTIZE: _DEQUANTIZE,
        Operation.REQUANTIZE: scheme_rule(schemes.ONNXRUNTIME, storages=_INTEGERS),
    },
    products=_products(schemes.ONNXRUNTIME.name),
    addition=_ADD,
    casts=_CASTS,
)

ONNX_1_32 = replace(
    ONNX,
    name="onnx_1_32",
    title="ONNX, as onnxruntime from 1.32",
    summary="As `onnx`, but for QuantizeLinear: since 1.32 all of its loops saturate, every NaN gives the lowest "
    "integer, and f16 is divided in f16. bf16, which onnxruntime lacks, follows the rule of f16.",
    source="onnxruntime 1.32.0, ONNX opset 23 and newer",
    operations={
        **ONNX.operations,
        Operation.QUANTIZE: replace(
            _QUANTIZE,
            formula="clamp(RNE(E(x / s)) + z, lo, hi), s = E(scale); to small floats: cast(E(x / s)), saturating",
            precision="division in the expressed type E, as the nodes of opset 23 and newer do; those of older opsets "
            "divide f16 in f32, in the operator onnx.QuantizeLinear too",
            steps=Steps.EXPRESSED,
        ),
    },
)

ONNX_REFERENCE = Profile(
    name="onnx_reference",
    title="ONNX ReferenceEvaluator",
    summary="QuantizeLinear, DequantizeLinear and the output of QLinearMatMul and QLinearConv as the "
    "ReferenceEvaluator of the onnx package computes them on x86: in the type of the data, wrapping where int32 does.",
    source="onnx 1.23.2, onnx.reference",
    operations={
        Operation.QUANTIZE: replace(
            _REFERENCE, variants=dict.fromkeys(("f4E2M1FN", "f6E2M3FN", "f6E3M2FN"), _REFERENCE_ADDS_ZERO)
        ),
        Operation.DEQUANTIZE: replace(
            _DEQUANTIZE, symmetric=_FLOATS, variants={"i32": replace(_REFERENCE_INT32, symmetric=_FLOATS)}
        ),
        Operation.REQUANTIZE: scheme_rule(
            schemes.ONNX_REFERENCE, storages=_INTEGERS, zero_point=ZeroPoint.BEFORE_ROUNDING
        ),
    },
    products=_products(schemes.ONNX_REFERENCE.name),
    addition=_ADD,
    casts=_REFERENCE_CASTS,
)

PROFILES = (
    ONNX,
    ONNX_1_32,
    ONNX_REFERENCE,
)
