"""onnxruntime's QLinearSoftmax (qlinear_softmax.cc), from a table of exponentials.

    b      = max(0, f32(ln(f32(f32max / D))) - 5) / sx, D elements reduced                   f64
    table[i] = f32(exp((i - 255 + b) * sx))                                                  exp in f64
    e_j    = table[255 - max + x_j];  sum = (e_0 + e_1) + ..   f32;  quotient = f32(floor(f32(1 / sy)))
    Y_j    = sat(RNE(f32(f32(e_j * quotient) / sum)) + zy), since 1.32 in f64

In f32, e_j * quotient overflows for 1 / sy above about 148 * D.

It depends on differences of X only, so that its zero point has no part in it.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np

from requant.description import Array, Kind
from requant.errors import PreconditionError
from requant.operators.description import Attribute, Operand, OperatorCall, Work
from requant.operators.onnxruntime.arithmetic import BYTES, UNTIL_1_31, fused, parameters, quantized_of
from requant.operators.separate_parameters import normalized_axis
from requant.operators.stages import Quantized, Stages, in_stages, stage

_LARGEST = np.finfo(np.float32).max
_AXIS_IS_LAST_FROM = 13


def _exponential(x: float) -> np.float32:
    """Return f32(exp(x)) of an f64, the same on every machine."""
    near = math.exp(x) if x < 709 else math.inf
    low, high = np.float32(near * (1 - 2.0**-50)), np.float32(near * (1 + 2.0**-50))
    return low if low == high else np.float32(float(Decimal(x).exp()))


def _table(scale: np.float32, length: int) -> Array:
    width = float(scale)
    shift = max(0.0, float(np.float32(math.log(float(_LARGEST / np.float32(length))))) - 5) / width
    return np.array([_exponential((code - 255 + shift) * width) for code in range(256)], np.float32)


def _overflowed(y: Quantized) -> int:
    """Return what onnxruntime gives up to 1.31 where powers * quotient overflow.

    As ui8 that is 0 and the zero point, as i8 -2^31 and the zero point modulo 2^32, clamped.
    """
    if y.lowest == 0:
        return y.zero_point
    return y.highest if y.zero_point < 0 else y.lowest


def _plan(call: OperatorCall) -> Work:
    x = call.inputs["X"]
    # As the schema has it.
    of_x, of_y = quantized_of(call, "X", "X", "x", "X_scale"), quantized_of(call, "Y", "X", "y")
    last = call.integer("opset") >= _AXIS_IS_LAST_FROM
    axis = normalized_axis(call.integer("axis"), len(x.shape))
    if not (of_x.scale > 0 and np.isfinite(of_x.scale)):
        raise PreconditionError("X_scale is positive and finite", pointer="/inputs/X_scale")
    kind: type[np.floating[Any]] = np.float32 if call.implementation == UNTIL_1_31 else np.float64
    rows = np.moveaxis(x.data.reshape(x.shape), axis, -1) if last else x.data.reshape(*x.shape[:axis], -1)
    length = rows.shape[-1]

    def stages() -> Stages:
        if not x.data.size:
            return {"Y": x.data.reshape(x.shape)}
        table = _table(of_x.scale, length)
        numbers = rows.astype(np.int32)
        powers = table.take(255 - numbers.max(-1, keepdims=True) + numbers)
        # One after the other, as onnxruntime adds.
        total = np.add.accumulate(powers, axis=-1, dtype=np.float32)[..., -1:]
        quotient = np.floor(np.float32(1) / of_y.scale)
        scaled = powers.astype(kind) * quotient / total
        y = of_y.quantized(scaled)
        if kind is np.float32:
            y = np.where(np.isinf(scaled), of_y.dtype.type(_overflowed(of_y)), y)
        placed = np.moveaxis(y, -1, axis) if last else y.reshape(x.shape)
        return {"table": table, "powers": powers, "sum": total, "scaled": scaled, "Y": placed}

    return in_stages(call, stages, x.shape)


QLINEAR_SOFTMAX = fused(
    "QLinearSoftmax",
    summary="Softmax of a quantized tensor along an axis, from a table of exponentials.",
    inputs=(
        Operand(name="X", description="The tensor.", types=BYTES),
        parameters("X")[0],
        parameters("X", prefix="x")[1],
        *parameters("X", prefix="y", optional=False),
    ),
    output=Operand(name="Y", description="The result, of the type of X.", types=BYTES),
    stages=(
        stage("table", "f32(exp((i - 255 + b) * sx)) of i from 0 to 255."),
        stage("powers", "table[255 - max + x], the reduced dimension last."),
        stage("sum", "Their sum, in f32 in the order of the elements."),
        stage("scaled", "powers * floor(f32(1 / sy)) / sum, in f32 or since 1.32 in f64.", {"f32": 1, "f64": 1}),
    ),
    attributes=(
        Attribute(
            name="axis",
            kind=Kind.INTEGER,
            description="The reduced dimension, or the first of them with opset below 13.",
            default=-1,
        ),
        Attribute(
            name="opset",
            kind=Kind.INTEGER,
            description="The opset of the Softmax that it stands for; from 13 on it reduces one dimension.",
            lowest=1,
            highest=1 << 31,
        ),
    ),
    deviations=(
        "A scale of X that is not positive and finite is refused.",
        "Where 1 / y_scale is above about 148 times the reduced elements, products overflow up to 1.31.",
    ),
    plan=_plan,
    example={
        "inputs": {
            "X": {"type": "tensor<4xui8>", "values": [10, 20, 30, 40]},
            "X_scale": {"type": "tensor<f32>", "values": [0.05]},
            "x_zero_point": {"type": "tensor<ui8>", "values": [0]},
            "y_scale": {"type": "tensor<f32>", "values": [0.00390625]},
            "y_zero_point": {"type": "tensor<ui8>", "values": [0]},
        },
        "attributes": {"opset": 13},
    },
)
