"""Bias: int32 at the scale of the accumulator, input scale times weight scale, so that it can be added as it is.

Source: LiteRT SymmetricBiasQuantize; onnxruntime.quantization quantize_bias_static; torch QuantizeBias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.calibration.finished_type import Granularity, PerAxis, PerTensor, finish_type
from requant.calibration.ranges.rule import round_half_away
from requant.convert.quantize import plan_quantize
from requant.errors import ParameterError, PreconditionError, TypeFitError
from requant.errors.names import entry_named
from requant.formats.elements import FLOATS, IntegerElement
from requant.mlir.types import StorageType, TensorType

Array = NDArray[Any]

BIAS_STORAGE = StorageType.unbounded(IntegerElement(32), signed=True)

_INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class QuantizedBias:
    """int32 values and how many of them the bounds have cut."""

    values: Array
    saturated_low: int
    saturated_high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasRule:
    """How one system makes the scale of a bias and its integers.

    `scale_dtype` is the precision in which the system keeps scales and multiplies them. `quantize` takes f32 values and
    scales, one or one for each value.
    """

    name: str
    summary: str
    formula: str
    source: str
    scale_dtype: type[np.floating[Any]]
    quantize: Callable[[Array, Array], QuantizedBias]


def _clipped(exact: Array, lowest: int, highest: int) -> QuantizedBias:
    low, high = exact < lowest, exact > highest
    return QuantizedBias(
        np.clip(exact, lowest, highest).astype(np.int64).astype(np.int32),
        int(np.count_nonzero(low)),
        int(np.count_nonzero(high)),
    )


def _litert(values: Array, scales: Array) -> QuantizedBias:
    """RNA(f32(b * f32(1 / s))) within +-(2^31 - 1); with scale 0, 0."""
    inverses = np.where(scales == 0, np.float32(0), np.float32(1) / scales)
    _refuse(np.isinf(inverses), "its reciprocal is not finite in f32")
    products = (values * inverses).astype(np.float64)
    return _clipped(round_half_away(products), -_INT32_MAX, _INT32_MAX)


def _onnxruntime(values: Array, scales: Array) -> QuantizedBias:
    """RNE(f64(b) / f64(s)), clipped to int32."""
    _refuse(scales == 0, "it is 0 in f32, and onnxruntime divides by it")
    return _clipped(np.rint(values.astype(np.float64) / scales), -_INT32_MAX - 1, _INT32_MAX)


def _torch(values: Array, scales: Array) -> QuantizedBias:
    """What torch's quantize_per_tensor and quantize_per_channel give for qint32."""
    granularity: Granularity = PerTensor() if scales.size == 1 else PerAxis(0, scales.size)
    expressed = FLOATS["f32"]
    type_ = finish_type(BIAS_STORAGE, expressed, scales, [0] * scales.size, granularity)
    plan = plan_quantize(TensorType(values.shape, expressed), type_, "torch")
    target = np.empty(values.size, np.int32)
    report = plan.run(np.ascontiguousarray(values), target)
    return QuantizedBias(target, report.saturated_low, report.saturated_high)


def _refuse(wrong: Array, detail: str) -> None:
    if wrong.any():
        index = int(np.argmax(wrong))
        raise PreconditionError(f"the bias scale of channel {index} cannot be used: {detail}", index=index)


BIAS_RULES: Mapping[str, BiasRule] = {
    rule.name: rule
    for rule in (
        BiasRule(
            name="litert",
            summary="LiteRT's converter",
            formula="s = f32(s_in * s_w); q = RNA(f32(b * f32(1 / s))) within +-(2^31 - 1); s = 0 gives 0",
            source="LiteRT quantization_utils.cc SymmetricBiasQuantize",
            scale_dtype=np.float32,
            quantize=_litert,
        ),
        BiasRule(
            name="onnxruntime",
            summary="onnxruntime's quantization tools",
            formula="s = f32(s_in * s_w); q = RNE(f64(b) / f64(s)) clipped to int32",
            source="onnxruntime.quantization 1.31 quantize_bias_static",
            scale_dtype=np.float32,
            quantize=_onnxruntime,
        ),
        BiasRule(
            name="torch",
            summary="the bias of torch's quantized layers on qnnpack",
            formula="s = f64(s_in * s_w); q = profile torch's quantize to i32: RNE(f32(b * f32(1 / f32(s))))",
            source="torch 2.13 ATen QuantUtils.h QuantizeBias",
            scale_dtype=np.float64,
            quantize=_torch,
        ),
    )
}


def bias_rule_named(name: str) -> BiasRule:
    """Return the rule of that name, or raise UnknownNameError listing those that exist."""
    return entry_named(BIAS_RULES, name, "bias rule")


def bias_scales(rule: BiasRule, input_scale: float, weight_scales: Array) -> Array:
    """Return s_in * s_w of each weight scale, as f64 that hold what the system keeps.

    Raise ParameterError for a scale that is negative or not finite in the system's precision, PreconditionError for a
    product that is not.
    """
    factors = np.array([input_scale, *weight_scales.tolist()], np.float64)
    with np.errstate(all="ignore"):
        rounded = factors.astype(rule.scale_dtype)
        wrong = ~(np.isfinite(rounded) & (factors >= 0))
        if wrong.any():
            index = int(np.argmax(wrong))
            place = "the input scale" if index == 0 else f"weight scale {index - 1}"
            pointer = "/input_scale" if index == 0 else f"/weight_scales/{index - 1}"
            precision = np.dtype(rule.scale_dtype).name
            raise ParameterError(f"{place} must be finite as {precision}, and not negative", pointer=pointer)
        products = rounded[0] * rounded[1:]
    _refuse(np.isinf(products), "the product is not finite")
    scales: Array = products.astype(np.float64)
    return scales


def quantize_bias(rule: BiasRule, values: Array, scales: Array) -> QuantizedBias:
    """Return the flat f32 `values` as int32 by the rule, with the `scales` of `bias_scales`.

    Raise TypeFitError unless there is one scale, or one for each value; ParameterError for a value that is not finite;
    PreconditionError for a scale with which the system's arithmetic is not defined.
    """
    if scales.size not in (1, values.size):
        raise TypeFitError(
            f"{scales.size} weight scales for a bias of {values.size} elements; expected one, or one per element"
        )
    if not np.isfinite(values).all():
        index = int(np.argmin(np.isfinite(values)))
        raise ParameterError(f"element {index} of the bias is not finite")
    with np.errstate(all="ignore"):
        return rule.quantize(values, scales.astype(rule.scale_dtype))
