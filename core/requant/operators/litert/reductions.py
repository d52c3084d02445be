"""LiteRT's MEAN and SUM of quantized tensors (kernels/reduce.cc, XNNPACK's qs8-rsum). n elements are added to one.

MEAN  acc = sum(x) - zx * n
      reference  (m, e) = QuantizeMultiplier(sx / sy), k = min(floor(log2 n), 32, 31 + e)
                 output = sat(scaled(acc, (floor(m * 2^k / n), e - k)) + zy)
      optimized  the same; 8 bits, axes 1 and 2 of rank 4 with keep_dims: t = f32(f32(zx * sx) / sy)
                 output = sat(scaled(sum(x), f32(sx / f32(n * sy))) + zy - RTZ(f32(t +- 0.5))), of i8 in whole
                 groups of 16 channels with ties of the last rounding up
      xnnpack    8 bits: f = f32(f32(sx / sy) * f32(1 / n))
                 sat(RNE(f32(f32(f32(sum(x)) * f) + f32(f32(f32(-zx * n) * f) + zy))))
SUM   reference  u8: sat(scaled(acc, sx / sy) + zy); i8 likewise, read and written as bytes from 0 to 255
      optimized  f = f32(sx / sy): sat(RNA(f32(f32(f32(sum(x)) * f) + f32(f32(-zx * f) * n))) + zy)
      xnnpack    8 bits: as MEAN's with f = f32(sx / sy); 16 bits as optimized
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from requant.calibration.ranges.rule import round_half_away
from requant.description import Array, Kind
from requant.errors import ParameterError, TypeFitError, UnsupportedError
from requant.operators.description import Attribute, Operand, OperatorCall, Work
from requant.operators.litert.arithmetic import (
    OPTIMIZED,
    REFERENCE,
    XNNPACK,
    described,
    multiplier_of,
    quantized,
    quantized_output,
    scaled,
    tensor,
)
from requant.operators.stages import F32, I32, Quantized, Stages, in_stages, stage
from requant.schemes import Multiplier
from requant.schemes.litert import ARM_VECTOR

Compute = Callable[[Array], Stages]
"""From sums of stored numbers, as i32, to stages."""


def _axes(call: OperatorCall) -> tuple[int, ...]:
    """Return the reduced dimensions, each once."""
    rank = len(call.inputs["input"].shape)
    given = call.inputs["axis"]
    for axis in given.data.tolist():
        if not -rank <= axis < rank:
            raise ParameterError(f"axis {axis} of rank {rank}: {-rank} to {rank - 1}", pointer="/inputs/axis")
    return tuple(sorted({axis % rank for axis in given.data.tolist()}))


def _planned(
    call: OperatorCall, computing: Callable[[OperatorCall, Quantized, Quantized, int, tuple[int, ...]], Compute]
) -> Work:
    x, axes = call.inputs["input"], _axes(call)
    if len(call.inputs["axis"].shape) > 1:
        raise TypeFitError("axis has rank 0 or 1", pointer="/inputs/axis")
    count = prod(x.shape[axis] for axis in axes)
    if not count:
        raise TypeFitError("no elements are reduced", pointer="/inputs/input")
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    shape = kept if call.boolean("keep_dims") else tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
    of_x = quantized(call, "input")
    of_y, element = quantized_output(call, shape, "input")
    with np.errstate(all="ignore"):
        compute = computing(call, of_x, of_y, count, axes)
    as_bytes = call.text("kernel") == REFERENCE and computing is _sum and x.data.dtype == np.int8

    def stages() -> Stages:
        stored = x.data.view(np.uint8) if as_bytes else x.data
        sums = stored.reshape(x.shape).sum(axes, np.int32).reshape(shape)
        return {"sum": sums, **compute(sums)}

    return in_stages(call, stages, shape, x.data.size, element=element)


def _in_f32(sums: Array, factor: Any, x: Quantized, y: Quantized, count: int) -> Stages:
    """Return XNNPACK's stages: both zero points are added before rounding."""
    bias = np.float32(-x.zero_point * count) * factor + np.float32(y.zero_point)
    real = sums.astype(np.float32) * factor + bias
    return {"real": real, "output": np.rint(np.clip(real, y.lowest, y.highest)).astype(y.dtype)}


def _fixed(sums: Array, multiplier: Multiplier, offset: int, y: Quantized) -> Stages:
    rescaled = scaled(sums, multiplier)
    return {"scaled": rescaled, "output": y.saturated(rescaled.astype(np.int64) + offset)}


def _mean(call: OperatorCall, x: Quantized, y: Quantized, count: int, axes: tuple[int, ...]) -> Compute:
    kernel, ratio = call.text("kernel"), x.scale / y.scale
    of_bytes = y.dtype != np.int16
    if kernel == XNNPACK and of_bytes:
        return lambda sums: _in_f32(sums, ratio * (np.float32(1) / np.float32(count)), x, y, count)
    image = len(call.inputs["input"].shape) == 4 and axes == (1, 2) and call.boolean("keep_dims")
    if kernel != REFERENCE and of_bytes and image:
        shifted = np.float32(x.zero_point) * x.scale / y.scale
        bias = y.zero_point - int(np.trunc(shifted + np.float32(0.5 if shifted > 0 else -0.5)))
        of_image = multiplier_of(x.scale / (np.float32(count) * y.scale))
        channels = call.inputs["input"].shape[3]
        in_groups = np.arange(channels) < (channels // 16 * 16 if y.dtype == np.int8 else 0)

        def compute(sums: Array) -> Stages:
            rescaled = np.where(in_groups, scaled(sums, of_image, ARM_VECTOR), scaled(sums, of_image))
            return {"scaled": rescaled, "output": y.saturated(rescaled.astype(np.int64) + bias)}

        return compute
    whole = multiplier_of(float(x.scale) / float(y.scale))
    shift = min(count.bit_length() - 1, 32, 31 + whole.shift)
    divided = Multiplier((whole.multiplier << shift) // count, whole.shift - shift)
    return lambda sums: _fixed(sums - np.int32(x.zero_point * count), divided, y.zero_point, y)


def _sum(call: OperatorCall, x: Quantized, y: Quantized, count: int, axes: tuple[int, ...]) -> Compute:
    kernel, ratio = call.text("kernel"), x.scale / y.scale
    if kernel == XNNPACK and y.dtype != np.int16:
        return lambda sums: _in_f32(sums, ratio, x, y, count)
    if kernel != REFERENCE:
        bias = np.float32(-x.zero_point) * ratio * np.float32(count)

        def compute(sums: Array) -> Stages:
            real = sums.astype(np.float32) * ratio + bias
            rounded = round_half_away(real) + np.float32(y.zero_point)
            return {"real": real, "output": np.clip(rounded, y.lowest, y.highest).astype(y.dtype)}

        return compute
    if y.dtype == np.int16:
        raise UnsupportedError(
            "the reference kernel reads i16 as bytes, and leaves half of its output unwritten", pointer="/inputs/input"
        )
    multiplier = multiplier_of(float(x.scale) / float(y.scale))

    def of_bytes(sums: Array) -> Stages:
        rescaled = scaled(sums - np.int32(x.zero_point * count), multiplier)
        stored = np.clip(rescaled.astype(np.int64) + y.zero_point, 0, 255).astype(np.uint8)
        return {"scaled": rescaled, "output": stored.view(y.dtype)}

    return of_bytes


_OPERANDS = (
    tensor("input", "The tensor, of i8, u8 or i16."),
    Operand(name="axis", description="The dimensions to reduce; negative ones count from the end.", types=I32),
)
_KEEP_DIMS = Attribute(
    name="keep_dims", kind=Kind.BOOLEAN, description="Whether reduced dimensions stay, of size 1.", default=False
)
_STAGES = (
    stage("sum", "Of the stored numbers.", I32),
    stage("scaled", "scaled(..), the zero point not added.", I32),
    stage("real", "Before rounding, in f32; of xnnpack with the zero point of the output.", F32),
)
_EXAMPLE = {
    "inputs": {
        "input": {"type": "tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>", "values": [-100, 3, 120, 7, 8, -9]},
        "axis": {"type": "tensor<1xi32>", "values": [1]},
    },
}

MEAN = described(
    "MEAN",
    summary="The means along dimensions of a quantized tensor.",
    inputs=_OPERANDS,
    stages=_STAGES,
    attributes=(_KEEP_DIMS,),
    plan=lambda call: _planned(call, _mean),
    example={**_EXAMPLE, "attributes": {"output_type": "!quant.uniform<i8:f32, 0.25:5>", "kernel": OPTIMIZED}},
)

SUM = described(
    "SUM",
    summary="The sums along dimensions of a quantized tensor.",
    inputs=_OPERANDS,
    stages=_STAGES,
    attributes=(_KEEP_DIMS,),
    deviations=(
        "reference: i8 is read and written as bytes from 0 to 255, as LiteRT does, and i16 refused: LiteRT reads half "
        "of it, and leaves half of its output unwritten.",
    ),
    plan=lambda call: _planned(call, _sum),
    example={**_EXAMPLE, "attributes": {"output_type": "!quant.uniform<i8:f32, 2.0:5>", "kernel": XNNPACK}},
)
