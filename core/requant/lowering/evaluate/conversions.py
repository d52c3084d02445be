"""Quantize, dequantize, requantize and RESCALE inside of modules: the plans that answer requests, on whole arrays."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from requant import mlir
from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.formats.elements import FloatElement
from requant.lowering.evaluate.arrays import Array, dtype_of
from requant.operators.tosa.rescale_plan import RescaleRounding, plan_rescale
from requant.plan.plan import Plan

_BF16 = np.dtype(ml_dtypes.bfloat16)


def _run(plan: Plan, value: Array, element: mlir.ElementType) -> Array:
    source = np.ascontiguousarray(value).reshape(-1)
    source = source.view(np.uint16) if source.dtype == _BF16 else source
    target = np.empty(plan.elements, plan.output_dtype)
    plan.run(source, target)
    return target.view(dtype_of(element)).reshape(value.shape)


def quantize(value: Array, source: FloatElement, target: mlir.UniformQuantizedType, profile: str) -> Array:
    """Return the stored numbers of floats."""
    plan = plan_quantize(mlir.TensorType(value.shape, source), target, profile)
    return _run(plan, value, target)


def dequantize(value: Array, source: mlir.UniformQuantizedType, profile: str) -> Array:
    """Return the floats that stored numbers stand for."""
    plan = plan_dequantize(mlir.TensorType(value.shape, source), None, profile)
    return _run(plan, value, source.expressed)


def requantize(value: Array, source: mlir.UniformQuantizedType, target: mlir.UniformQuantizedType) -> Array:
    """Return the stored numbers of one type as those of another, as StableHLO's specification says."""
    return quantize(dequantize(value, source, "stablehlo"), source.expressed, target, "stablehlo")


def rescale(
    value: Array,
    source: mlir.ElementType,
    target: mlir.ElementType,
    parameters: tuple[Array, Array, Array, Array],
    flags: dict[str, Any],
    rounding: str,
) -> Array:
    """Return TOSA's RESCALE. `parameters` are multiplier, shift and the zero points; types are plain integers."""
    multiplier, shift, input_zp, output_zp = (each.reshape(-1).tolist() for each in parameters)
    plan = plan_rescale(
        mlir.TensorType(value.shape, source),
        target,
        multiplier,
        shift,
        input_zp=input_zp[0],
        output_zp=output_zp[0],
        rounding_mode=RescaleRounding(rounding),
        **flags,
    )
    output = np.empty(plan.elements, plan.output_dtype)
    plan.run(np.ascontiguousarray(value).reshape(-1).astype(plan.input_dtype), output)
    return output.reshape(value.shape).astype(dtype_of(target))
