"""ONNX's QLinear operators, as onnxruntime and as the reference evaluator compute them."""

from __future__ import annotations

from dataclasses import replace

from core.formats.rounding import Rounding
from core.kernels.convert.requantize.rules import FloatRule
from core.schemes import float_factor
from core.schemes.scheme import Factor, Scheme

ONNXRUNTIME = Scheme(
    name="onnxruntime",
    summary="onnxruntime's QLinear operators: one f32 product, ties to even, the zero point after rounding.",
    derivation="m of 24 bits and shift with f32(d) = m * 2^-shift exactly",
    source="onnxruntime 1.31.1, QLinearMatMul and QLinearConv, CPU provider",
    convention=float_factor.CONVENTION,
    formula="RNE(f32(f32(v) * f)) + z_out",
    where="f the f32 m * 2^-shift",
    rounding=Rounding.NEAREST_EVEN,
    factor=Factor.F32,
    multiplier_of=float_factor.of_f32,
    right_shift=float_factor.right_shift,
    multipliers=float_factor.F32_MULTIPLIERS,
    shifts=float_factor.F32_SHIFTS,
    stage=float_factor.f32_stage(FloatRule.F32_EVEN),
)
ONNX_REFERENCE = replace(
    ONNXRUNTIME,
    name="onnx_reference",
    summary="The reference evaluator's QLinear operators: the same f32 factor, an f64 product, and the zero point "
    "added before rounding.",
    source="onnx 1.23.2, onnx.reference, QLinearMatMul and QLinearConv",
    formula="RNE(f64(f64(f64(v) * f) + z_out))",
    where="f the f32 m * 2^-shift",
    stage=float_factor.f32_stage(FloatRule.F64_EVEN_OFFSET),
)

SCHEMES = (ONNXRUNTIME, ONNX_REFERENCE)
