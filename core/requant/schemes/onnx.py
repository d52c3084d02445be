"""ONNX's QLinear operators, as onnxruntime and as the reference evaluator compute them."""

from __future__ import annotations

from dataclasses import replace

from requant.kernels.convert.requantize.rules import FloatRule
from requant.schemes import float_factor

ONNXRUNTIME = float_factor.f32_product(
    name="onnxruntime",
    summary="onnxruntime's QLinear operators: one f32 product, ties to even, the zero point after rounding.",
    source="onnxruntime 1.31.1, QLinearMatMul and QLinearConv, CPU provider",
)
ONNX_REFERENCE = replace(
    ONNXRUNTIME,
    name="onnx_reference",
    summary="The reference evaluator's QLinear operators: the same f32 factor, an f64 product, and the zero point "
    "added before rounding.",
    source="onnx 1.23.2, onnx.reference, QLinearMatMul and QLinearConv",
    formula="RNE(f64(f64(f64(v) * f) + z_out))",
    stage=float_factor.f32_stage(FloatRule.F64_EVEN_OFFSET),
)

SCHEMES = (ONNXRUNTIME, ONNX_REFERENCE)
