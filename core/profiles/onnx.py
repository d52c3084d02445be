"""ONNX: the zero point is added after rounding."""

from __future__ import annotations

from dataclasses import replace

from core.profiles.rule import DEQUANTIZE, Operation, OperationRule, Profile, Rounding, ZeroPoint

ONNX = Profile(
    name="onnx",
    title="ONNX, as onnxruntime",
    summary="QuantizeLinear and DequantizeLinear as onnxruntime's CPU provider computes them in f32: the zero "
    "point is added after rounding.",
    source="onnxruntime 1.31.1, ONNX opset 21",
    operations={
        Operation.QUANTIZE: OperationRule(
            formula="clamp(RNE(f32(x / f32(s))) + z, lo, hi)",
            precision="true division in f32",
            rounding=Rounding.NEAREST_EVEN,
            zero_point=ZeroPoint.AFTER_ROUNDING,
            saturation="infinities and huge values saturate",
            nan="lo",
        ),
        Operation.DEQUANTIZE: replace(DEQUANTIZE, symmetric=("i32",)),
    },
)
