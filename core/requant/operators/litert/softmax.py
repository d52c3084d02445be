"""LiteRT's SOFTMAX of quantized tensors along the last dimension (kernels/activations.cc, reference/softmax.h).

optimized, xnnpack, 8 bits:  e = f32(exp(f32(f32(-sx * beta) * (max - x)))), S = (e_0 + e_1) + .. in f32
             r = f32(e * f32(1 / f32(S * sy))), i8 sat(RNA(r) - 128), u8 sat(floor(f32(r + 0.5)))
reference, 8 bits, gemmlowp's fixed point with 26 or 31 bits behind the point, `*` SRDHM of int32:
             E = exp(scaled(x - max, min(beta * sx * 2^26, 2^31 - 1))), where x - max is not below a radius
             S = sum(RNA(E / 2^12)), shifted so that its highest bit is 2^31, R = 1 / S in three Newton steps
             sat(RNA((R * E) / 2^(b + 23)) + lowest), b = 12 - leading zeros of S
16 bits:     by tables of 512 steps of exp and of 1 / (1 + x), with linear interpolation, `_wide`
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from requant.calibration.ranges.rule import round_half_away
from requant.description import Array, Kind
from requant.errors import ParameterError, PreconditionError, TypeFitError, UnsupportedError
from requant.operators.description import Attribute, OperatorCall, Work
from requant.operators.litert.arithmetic import (
    REFERENCE,
    described,
    multiplier_of,
    quantized,
    quantized_output,
    scaled,
    tensor,
)
from requant.operators.stages import F32, I32, Quantized, Stages, in_stages, stage

_INT32_MAX = (1 << 31) - 1
# The stages are of int64.
_WIDTH = 64
_QUARTER = 1 << 24
# gemmlowp's exp(-2^k) with 31 bits behind the point, k from -2 to 4; exp(-1/8), and 1/3.
_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
_EXP_OF_EIGHTH, _THIRD = 1895147668, 715827883
# The last division is by at most 2^31.
_MIN_LEADING_ZEROS = 4
# 48/17 and 32/17 with 29 bits behind the point.
_FIRST_GUESS, _SLOPE = 1515870810, -1010580540


def _product(a: Array, b: Array | int) -> Array:
    """Return SRDHM(a, b) of int32 in int64, none of them -2^31."""
    product: Array = a * b + (1 << 30)
    rounded: Array = product >> 31
    return rounded


def _away(a: Array, shift: Array | int) -> Array:
    """Return RNA(a / 2^shift)."""
    half = (np.int64(1) << shift) >> 1
    return np.where(a < 0, -((half - a) >> shift), (a + half) >> shift)


def _left(a: Array, shift: int) -> Array:
    shifted: Array = np.clip(a << shift, -(1 << 31), _INT32_MAX)
    return shifted


def _exp_of_negative(a: Array) -> Array:
    """Return exp of numbers of at most 0 with 26 bits behind the point, with 31 bits."""
    in_quarter = (a & (_QUARTER - 1)) - _QUARTER
    x = _left(in_quarter, 5) + (1 << 28)
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    series = x + _away(_product(_away(fourth, 2) + cube, _THIRD) + square, 1)
    found = _EXP_OF_EIGHTH + _product(series, _EXP_OF_EIGHTH)
    rest = in_quarter - a
    for place, power in enumerate(_POWERS):
        found = np.where(rest & (_QUARTER << place), _product(found, power), found)
    return np.where(a == 0, _INT32_MAX, found)


def _reciprocal(a: Array) -> Array:
    """Return 1 / (1 + a) of numbers from 0 to 1, all with 31 bits behind the point."""
    half = (a + _INT32_MAX + 1) >> 1
    x = _FIRST_GUESS + _product(half, _SLOPE)
    for _ in range(3):
        x = x + _left(_product(x, (1 << 29) - _product(half, x)), 2)
    return _left(x, 1)


def _fixed_point(rows: Array, x: Quantized, y: Quantized, beta: float) -> Stages:
    multiplier = multiplier_of(min(beta * float(x.scale) * 2.0**26, 2.0**31 - 1))
    if multiplier.shift < 1:
        raise ParameterError("beta times the scale is at least 2^-26", pointer="/attributes/beta")
    radius = (31 << 26) >> multiplier.shift
    differences = np.arange(-255, 1, dtype=np.int64)
    near = differences >= -radius
    powers = np.where(
        near, _exp_of_negative(scaled(np.where(near, differences, 0).astype(np.int32), multiplier).astype(np.int64)), 0
    )
    place = 255 - rows.max(-1, keepdims=True) + rows
    found = powers.take(place)
    total = _away(found, 12).sum(-1, keepdims=True)
    zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    if np.any(zeros < _MIN_LEADING_ZEROS):
        raise PreconditionError(
            "the sum of a row's exponentials is 512 or more, where LiteRT's reference kernel ends the process",
            pointer="/inputs/input",
        )
    inverse = _reciprocal((total << zeros) - (1 << 31))
    rescaled = _away(_product(inverse, found), 12 - zeros + 23)
    stored = np.where(near.take(place), rescaled + y.lowest, y.lowest)
    return {
        "power": found.astype(np.int32), "total": total.astype(np.int32), "inverse": inverse.astype(np.int32),
        "scaled": rescaled.astype(np.int32), "output": y.saturated(stored),
    }  # fmt: skip


def _in_f32(rows: Array, x: Quantized, y: Quantized, beta: float) -> Stages:
    factor = -x.scale * np.float32(beta)
    exponents = factor * np.arange(256, dtype=np.float32)
    table = np.array([math.exp(each) if each < 128 else math.inf for each in exponents.tolist()]).astype(np.float32)
    powers = table.take(rows.max(-1, keepdims=True) - rows)
    # One after the other, as LiteRT adds.
    total = np.add.accumulate(powers, axis=-1, dtype=np.float32)[..., -1:]
    real = powers * (np.float32(1) / (total * y.scale))
    rounded = round_half_away(real) - 128 if y.lowest else np.floor(real + np.float32(0.5))
    return {
        "real_power": powers, "real_total": total, "real": real,
        "output": np.clip(rounded, y.lowest, y.highest).astype(y.dtype),
    }  # fmt: skip


@cache
def _table(reciprocal: bool) -> Array:
    """Return 513 entries of 2^15 * exp(x) from -10 to 0, or of 2^15 / (1 + x) from 0 to 1.

    Half of the error in the middle of a step is taken from where it begins.
    """
    first, last = (0.0, 1.0) if reciprocal else (-10.0, 0.0)
    function: Callable[[float], float] = (lambda x: 1 / (1 + x)) if reciprocal else math.exp
    step = (last - first) / 512
    ends = np.array([function(first + index * step) for index in range(513)]) * 32768
    middles = np.array([function(first + index * step + step / 2) for index in range(512)]) * 32768
    begun = round_half_away(ends[:512])
    error = round_half_away((ends[1:] + begun) / 2) - round_half_away(middles)
    corrected = begun - round_half_away(error / 2)
    entries = np.append(corrected, round_half_away(np.array([function(last)]) * 32768))
    table: Array = np.clip(entries, -32768, 32767).astype(np.int64)
    return table


def _looked_up(value: Array, table: Array) -> Array:
    index = 256 + (value >> 7)
    found: Array = table[index] + (((table[index + 1] - table[index]) * (value & 127) + 64) >> 7)
    return found


def _wide(rows: Array, x: Quantized, y: Quantized, beta: float) -> Stages:
    """Return the stages of i16, look(v, T) = T[i] + RNU((T[i + 1] - T[i]) * (v & 127) / 2^7), i = 256 + (v >> 7).

    E = look(sat16(scaled(x - max, f32(sx * beta) / (10 / 65535)) + 32767), exp), S = sum(E), h its leading zeros of 32
    R = look(sat16(RNU((S << (h - 1)) / 2^14) - 98304), 1 / (1 + x)), output = RNU(E * R / 2^(31 - h)), 0 to 2^15 - 1
    """
    multiplier = multiplier_of(float(x.scale * np.float32(beta)) / (10.0 / 65535.0))
    difference = (rows - rows.max(-1, keepdims=True)).astype(np.int32)
    argument = np.clip(scaled(difference, multiplier).astype(np.int64) + 32767, -32768, 32767)
    power = _looked_up(argument, _table(False))
    total = power.sum(-1, keepdims=True)
    zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    shifted = np.clip((((total << (zeros - 1)) + (1 << 13)) >> 14) - 98304, -32768, 32767)
    inverse = _looked_up(shifted, _table(True))
    rescaled = (power * inverse + (np.int64(1) << (30 - zeros))) >> (31 - zeros)
    return {
        "power": power.astype(np.int32), "total": total.astype(np.int32), "inverse": inverse.astype(np.int32),
        "scaled": rescaled.astype(np.int32), "output": np.clip(rescaled, 0, 32767).astype(np.int16),
    }  # fmt: skip


def _plan(call: OperatorCall) -> Work:
    x = call.inputs["input"]
    if not x.shape or not x.shape[-1]:
        raise TypeFitError("softmax takes rank 1 or more, and a last dimension of elements", pointer="/inputs/input")
    of_x = quantized(call, "input")
    of_y, element = quantized_output(call, x.shape, "input")
    wide = of_x.dtype == np.int16
    needed = (np.float32(2.0**-15), 0) if wide else (np.float32(2.0**-8), of_y.lowest)
    if (of_y.scale, of_y.zero_point) != needed:
        raise UnsupportedError(
            f"the scale of the output is {float(needed[0])!r}, its zero point {needed[1]}",
            pointer="/attributes/output_type",
        )
    beta = float(np.float32(call.number("beta")))
    if not 0 < beta < math.inf:
        raise ParameterError("beta is above 0 and finite", pointer="/attributes/beta")
    compute = _wide if wide else _fixed_point if call.text("kernel") == REFERENCE else _in_f32
    compute(np.zeros((0, 1), np.int64), of_x, of_y, beta)  # raises what is wrong with the scales

    def stages() -> Stages:
        return compute(x.data.reshape(x.shape).astype(np.int64), of_x, of_y, beta)

    return in_stages(call, stages, x.shape, element=element, width=_WIDTH)


SOFTMAX = described(
    "SOFTMAX",
    summary="Softmax of a quantized tensor along its last dimension.",
    inputs=(tensor("input", "The tensor, of i8, u8 or i16."),),
    stages=(
        stage("power", "E: 31 bits behind the point, of i16 15 bits.", I32),
        stage("total", "S.", I32),
        stage("inverse", "R, one for each row.", I32),
        stage("scaled", "The result before the lowest value is added.", I32),
        stage("real_power", "e, of optimized and xnnpack.", F32),
        stage("real_total", "S in f32.", F32),
        stage("real", "r.", F32),
    ),
    attributes=(Attribute(name="beta", kind=Kind.NUMBER, description="The factor of the input, in f32.", default=1.0),),
    deviations=(
        "reference, 8 bits: rows whose exponentials sum to 512 or more, for which LiteRT ends the process, are errors.",
    ),
    plan=_plan,
    example={
        "inputs": {"input": {"type": "tensor<2x3x!quant.uniform<i8:f32, 0.1:3>>", "values": [1, 2, 3, -9, 0, 20]}},
        "attributes": {"output_type": "!quant.uniform<i8:f32, 0.00390625:-128>"},
    },
)
