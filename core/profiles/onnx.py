"""ONNX: the zero point is added after rounding; as onnxruntime computes it, and as the reference evaluator does."""

from __future__ import annotations

from dataclasses import replace

from core.profiles.rule import (
    DEQUANTIZE,
    Difference,
    Missing,
    Operation,
    OperationRule,
    Overflow,
    Profile,
    Rounding,
    Steps,
    ZeroPoint,
)

_EXPRESSED = ("f32", "f16", "bf16")
_GRANULARITIES = ("per_tensor", "per_axis", "sub_channel")
_FLOATS = ("f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ", "f4E2M1FN", "f6E2M3FN", "f6E3M2FN")
_STORAGES = ("i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16", "i32", *_FLOATS)

_QUANTIZE = OperationRule(
    formula="clamp(RNE(f32(x / s)) + z, lo, hi), s = E(scale); to small floats: cast(f32(x / s)), saturating",
    precision="f16 and bf16 are converted to f32; true division in f32",
    rounding=Rounding.NEAREST_EVEN,
    zero_point=ZeroPoint.AFTER_ROUNDING,
    saturation="infinities and huge values saturate; but in f16, in blocks along another axis than the last, and to 2 "
    "bits they convert as the reference evaluator does",
    nan="lo; NaN in small floats that have one, else 0 of the opposite sign",
    expressed=_EXPRESSED,
    storages=_STORAGES,
    granularities=_GRANULARITIES,
    short_blocks=True,
    float_storage="onnxruntime_saturating",
)
_SCALAR_LOOPS = replace(
    _QUANTIZE,
    saturation="what is beyond int32 becomes -2^31, as x86 converts it; z is added wrapping; then clamped",
    nan="lo when z >= 0, else hi",
    overflow=Overflow.INDEFINITE,
    missing=Missing.INDEFINITE,
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
    missing=Missing.INDEFINITE,
    float_storage="onnx_reference_saturating",
)
_REFERENCE_ADDS_ZERO = replace(_REFERENCE, float_zero_point=True)
_DEQUANTIZE = replace(
    DEQUANTIZE,
    expressed=_EXPRESSED,
    storages=_STORAGES,
    granularities=_GRANULARITIES,
    short_blocks=True,
    symmetric=("i32", *_FLOATS),
    float_storage="onnxruntime_saturating",
)

_REFERENCE_INT32 = replace(
    _DEQUANTIZE,
    formula="E((f32(q) - z) * s), s = E(scale)",
    precision="q is rounded to f32 first, the rest is in f64 and rounded once; to bf16 by way of f32",
    difference=Difference.DOUBLE_OF_F32,
)

ONNX = Profile(
    name="onnx",
    title="ONNX, as onnxruntime",
    summary="QuantizeLinear and DequantizeLinear as onnxruntime's CPU provider computes them: the zero point is added "
    "after rounding. bf16, which onnxruntime lacks, follows the rule of f32. Not followed: i4 and u4 elements that "
    "share a byte with those of another scale convert NaN, and what is beyond int32, otherwise there.",
    source="onnxruntime 1.31.1, ONNX opset 21 and newer",
    operations={
        Operation.QUANTIZE: replace(
            _QUANTIZE, variants=dict.fromkeys(("i2", "u2", "f16", "sub_channel_outer"), _SCALAR_LOOPS)
        ),
        Operation.DEQUANTIZE: _DEQUANTIZE,
    },
)

ONNX_REFERENCE = Profile(
    name="onnx_reference",
    title="ONNX ReferenceEvaluator",
    summary="QuantizeLinear and DequantizeLinear as the ReferenceEvaluator of the onnx package computes them on x86: "
    "in the type of the data, wrapping where int32 does.",
    source="onnx 1.23.2, onnx.reference",
    operations={
        Operation.QUANTIZE: replace(
            _REFERENCE, variants=dict.fromkeys(("f4E2M1FN", "f6E2M3FN", "f6E3M2FN"), _REFERENCE_ADDS_ZERO)
        ),
        Operation.DEQUANTIZE: replace(
            _DEQUANTIZE, symmetric=_FLOATS, variants={"i32": replace(_REFERENCE_INT32, symmetric=_FLOATS)}
        ),
    },
)
