"""LiteRT's functions of one quantized tensor (kernels/activations.cc): LOGISTIC, TANH, HARD_SWISH, LEAKY_RELU, RELU,
RELU6 and RELU_N1_TO_1. Those of 8 bits are tables of 256 entries.

    RELU, ..     output = clamp(scaled(x - zx, f32(sx / sy)) + zy)
    LEAKY_RELU   x >= zx: scaled(x - zx, f32(sx / sy)) + zy
                 x < zx: sign(alpha) * scaled(x - zx, f32(f32(sx * |alpha|) / sy)) + zy
                 xnnpack, 8 bits: p = f32(sx / sy), g = f32(p * alpha), k = RNE(256 * p) or below zx RNE(256 * g):
                 sat(floor((256 * zy + 128 + k * (x - zx)) / 256)), for 2^-8 <= p <= 2^7, 2^-8 <= |g|, -128 < g <= 128
    LOGISTIC,    8 bits: t = f(f32(sx * (x - zx))) in f32, r = f32(t * f32(1 / sy)): sat(RNA(r) + zy), of xnnpack
    TANH         sat(RNE(f32(r + zy)))
                 16 bits: by a table of 1 / (1 + exp(-i / 24)) with linear interpolation, `_interpolated`
    HARD_SWISH   in int16, `_hard_swish`
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from requant.calibration.ranges.rule import round_half_away
from requant.description import Array, Kind
from requant.errors import ParameterError, UnsupportedError
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Work
from requant.operators.litert.arithmetic import (
    BYTES,
    REFERENCE,
    XNNPACK,
    activation_bounds,
    clamped,
    described,
    multiplier_of,
    quantized,
    quantized_output,
    scaled,
    tensor,
)
from requant.operators.stages import F32, I32, Quantized, Stages, in_stages, looked_up, stage
from requant.schemes.litert import reduced_multiplier

Compute = Callable[[Array], Stages]
"""From x - zx, as i32, to stages."""

_INT16 = -(1 << 15), (1 << 15) - 1
_LARGEST_HALF = (1 << 15) - 1
# Entries of the table of i16 that are not the nearest integers, but above them.
_ABOVE = (
    4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41, 43, 44, 45, 46, 49,
    50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255,
)  # fmt: skip


def _planned(
    call: OperatorCall, computing: Callable[[OperatorCall, Quantized, Quantized], Compute], storages: tuple[str, ...]
) -> Work:
    x = call.inputs["input"]
    of_x = quantized(call, "input", storages)
    of_y, element = quantized_output(call, x.shape, "input")
    with np.errstate(all="ignore"):
        compute = computing(call, of_x, of_y)

    def stages() -> Stages:
        if of_x.dtype == np.int16:
            return {name: each.reshape(x.shape) for name, each in compute(x.data.astype(np.int32)).items()}
        found = dict(compute(of_x.centered(np.arange(256, dtype=np.uint8).view(of_x.dtype))))
        table = found.pop("output")
        return {**found, "table": table, "output": looked_up(np.asarray(table), x.data).reshape(x.shape)}

    return in_stages(call, stages, x.shape, element=element)


def _relu(call: OperatorCall, x: Quantized, y: Quantized, *, name: str) -> Compute:
    multiplier, bounds = multiplier_of(x.scale / y.scale), activation_bounds(name, y)

    def compute(centered: Array) -> Stages:
        rescaled = scaled(centered, multiplier)
        return {"scaled": rescaled, "output": clamped(rescaled + np.int32(y.zero_point), bounds, y.dtype)}

    return compute


def _leaky_relu(call: OperatorCall, x: Quantized, y: Quantized) -> Compute:
    alpha, ratio = np.float32(call.number("alpha")), x.scale / y.scale
    below = float(ratio * alpha)
    of_xnnpack = (
        call.text("kernel") == XNNPACK
        and y.dtype != np.int16
        and 2.0**-8 <= ratio <= 2.0**7
        and abs(below) >= 2.0**-8
        and -(2.0**7) + 2.0**-8 <= below <= 2.0**7
    )
    if of_xnnpack:
        factors = [round(256 * float(ratio)), round(256 * below)]

        def in_one(centered: Array) -> Stages:
            product = centered * np.where(centered >= 0, *factors).astype(np.int32)
            return {"scaled": product, "output": y.saturated((product + 256 * y.zero_point + 128) >> 8)}

        return in_one
    at_least_zero, of_negative = multiplier_of(ratio), multiplier_of(x.scale * abs(alpha) / y.scale)
    sign = np.int32(-1 if alpha < 0 else 1)

    def compute(centered: Array) -> Stages:
        rescaled = np.where(centered >= 0, scaled(centered, at_least_zero), sign * scaled(centered, of_negative))
        return {"scaled": rescaled, "output": y.saturated(rescaled.astype(np.int64) + y.zero_point)}

    return compute


def _each(function: Callable[[float], float], real: Array) -> Array:
    """Return f32(function(x)) of numbers of f32, from f64."""
    return np.array([function(each) for each in real.tolist()], np.float64).astype(np.float32)


def _exponential(x: float) -> float:
    return math.exp(x) if x < 128 else math.inf


def _logistic(real: Array) -> Array:
    return np.float32(1) / (np.float32(1) + _each(_exponential, -real))


def _hyperbolic_tangent(real: Array) -> Array:
    return _each(math.tanh, real)


def _sigmoid_table() -> Array:
    above = np.isin(np.arange(256), _ABOVE)
    return np.array([round(65536 / (1 + math.exp(-i / 24))) for i in range(256)], np.int64) + above


def _interpolated(call: OperatorCall, x: Quantized, y: Quantized, *, is_tanh: bool) -> Compute:
    """Return the function of i16, whose result has the scale 2^-15.

    d = RNU(x * m / 2^n), the input in units of 1 / (4096 * 3) (LOGISTIC: of its argument, TANH: of half of it), a = |d|
    LOGISTIC: u = a >> 9, r = (T[u] << 9) + (a & 511) * (T[u + 1] - T[u])
              output = (d >= 0 ? r + 512 : 2^25 - r + 511) >> 10
    TANH:     u = a >> 8, r likewise with 8 bits
              output = (d >= 0 ? r - 2^23 + 128 : 2^23 - r + 127) >> 8
    Where u >= 255, r is 0x7FFF << 10, or of TANH 0xFFFF << 8.
    """
    if y.scale != np.float32(2.0**-15):
        raise UnsupportedError("the scale of the output is 2^-15", pointer="/attributes/output_type")
    exponent = float(np.float32(np.log(x.scale)) * np.float32(1 / np.float32(math.log(2))))
    nearest = round(exponent)
    multiplier, shift = 0, 0
    if abs(exponent - nearest) < 1e-3:
        if call.text("kernel") != REFERENCE:
            raise UnsupportedError(
                "the optimized kernel of a scale that is a power of two is gemmlowp's, which is not followed",
                pointer="/inputs/input",
            )
        left = nearest + 12
        if left == 0 or (is_tanh and left == 1):
            multiplier = 3 << left
    if not multiplier:
        wide = float(x.scale) * 4096 * 3
        while wide <= _LARGEST_HALF / 2 and shift <= 30:
            wide, shift = wide * 2, shift + 1
        multiplier = int(wide)
    table = _sigmoid_table()
    fraction = 8 if is_tanh else 9
    most = 0xFFFF << 8 if is_tanh else 0x7FFF << 10

    def compute(stored: Array) -> Stages:
        argument = stored.astype(np.int64) * multiplier
        argument = (argument + ((1 << shift) >> 1)) >> shift
        place = np.abs(argument)
        entry = np.minimum(place >> fraction, 254)
        rest = place & ((1 << fraction) - 1)
        curve = (table[entry] << fraction) + rest * (table[entry + 1] - table[entry])
        curve = np.where(place >> fraction >= 255, most, curve)
        if is_tanh:
            found = np.where(argument >= 0, curve - (1 << 23) + 128, (1 << 23) - curve + 127) >> 8
        else:
            found = np.where(argument >= 0, curve + 512, (1 << 25) - curve + 511) >> 10
        return {"argument": argument, "curve": curve, "output": found.astype(np.int16)}

    return compute


def _by_function(call: OperatorCall, x: Quantized, y: Quantized, *, function: Callable[[Array], Array]) -> Compute:
    if x.dtype == np.int16:
        return _interpolated(call, x, y, is_tanh=function is _hyperbolic_tangent)
    inverse, zero_point = np.float32(1) / y.scale, np.float32(y.zero_point)
    of_xnnpack = call.text("kernel") == XNNPACK

    def compute(centered: Array) -> Stages:
        real = x.scale * centered.astype(np.float32)
        activated = function(real)
        rescaled = activated * inverse
        rounded = np.rint(rescaled + zero_point) if of_xnnpack else round_half_away(rescaled) + zero_point
        return {
            "dequantized": real, "activated": activated, "rescaled": rescaled,
            "output": np.clip(rounded, y.lowest, y.highest).astype(y.dtype),
        }  # fmt: skip

    return compute


def _high(a: Array, b: int | Array) -> Array:
    """Return SRDHM of int16: floor((a * b + 2^14) / 2^15), saturating."""
    product: Array = a * b + (1 << 14)
    found: Array = np.minimum(product >> 15, _LARGEST_HALF)
    return found


def _shifted_away(a: Array, shift: int) -> Array:
    """Return RNA(a / 2^shift)."""
    rounded: Array = np.sign(a) * ((np.abs(a) + ((1 << shift) >> 1)) >> shift)
    return rounded


def _hard_swish(call: OperatorCall, x: Quantized, y: Quantized) -> Compute:
    """Return the function in int16. h = f32(sx / 128), SRDHM and sat of 16 bits.

    (mo, eo) = QuantizeMultiplier(f32(h / sy)), (mr, er) = QuantizeMultiplier(f32(h / f32(3 / 32768))), m of 16 bits
    v = wrap16((x - zx) * 128), p = SRDHM(v, mo)
    r = v; er > 0: sat(r << (er - 1)); SRDHM(r, mr); er > 0: sat(r << 1), er < 0: RNA(r / 2^-er)
    output = sat(wrap16(RNA(RTZ(((r + 32768) >> 1) * p / 2^15) / 2^-eo) + zy))
    """
    high = x.scale / np.float32(128)
    of_output, of_gate = (multiplier_of(high / each) for each in (y.scale, np.float32(3) / np.float32(32768)))
    if not -16 <= of_output.shift <= 0:
        raise ParameterError(
            f"f32(sx / 128) / sy has the exponent {of_output.shift}, and LiteRT's are -16 to 0",
            pointer="/attributes/output_type",
        )
    gate_factor, output_factor = (reduced_multiplier(each.multiplier) for each in (of_gate, of_output))
    shift = of_gate.shift

    def compute(centered: Array) -> Stages:
        value = (centered * 128).astype(np.int16).astype(np.int64)
        product = _high(value, output_factor)
        gate = np.clip(value << (shift - 1), *_INT16) if shift > 0 else value
        gate = _high(gate, gate_factor)
        gate = np.clip(gate << 1, *_INT16) if shift > 0 else _shifted_away(gate, -shift)
        gate = (gate + (1 << 15)) >> 1
        swished = np.sign(product) * (np.abs(gate * product) >> 15)
        # The mask of 16 bits in LiteRT's rounding shift is -1: each number becomes -1.
        rounded = np.full_like(swished, -1) if of_output.shift == -16 else _shifted_away(swished, -of_output.shift)
        return {
            "product": product.astype(np.int16), "gate": gate.astype(np.int16),
            "scaled": rounded.astype(np.int32), "output": y.saturated((rounded + y.zero_point).astype(np.int16)),
        }  # fmt: skip

    return compute


_TABLE = stage("table", "The output for each code of 8 bits, those of i8 read as bytes.", {"ui8": 1, "i8": 1})
_SCALED = stage("scaled", "scaled(..), the zero point not added.", I32)
_OF_FUNCTION = (
    stage("dequantized", "f32(sx * (x - zx)); of 8 bits.", F32),
    stage("activated", "The function of it, in f32; of 8 bits.", F32),
    stage("rescaled", "f32(activated * f32(1 / sy)); of 8 bits.", F32),
    stage("argument", "x in units of 1 / 12288; of 16 bits.", {"i64": 1}),
    stage("curve", "What the table gives for its magnitude; of 16 bits.", {"i64": 1}),
    _TABLE,
)
_POWER_OF_TWO = (
    "optimized and xnnpack, i16: a scale that is a power of two within 0.1 % is refused; LiteRT computes it by another "
    "function there.",
)
_INPUT = {"input": {"type": "tensor<5x!quant.uniform<i8:f32, 0.05:3>>", "values": [-128, -30, 3, 40, 127]}}


def _described(
    name: str,
    summary: str,
    computing: Callable[[OperatorCall, Quantized, Quantized], Compute],
    output_type: str,
    *,
    stages: tuple[Operand, ...] = (_SCALED, _TABLE),
    storages: tuple[str, ...] = (*BYTES, "i16"),
    attributes: tuple[Attribute, ...] = (),
    given: dict[str, float] | None = None,
    deviations: tuple[str, ...] = (),
) -> Operator:
    return described(
        name,
        summary=summary,
        inputs=(tensor("input", f"The tensor, of {', '.join(storages)}."),),
        stages=stages,
        attributes=attributes,
        deviations=deviations,
        plan=lambda call: _planned(call, computing, storages),
        example={"inputs": _INPUT, "attributes": {"output_type": output_type, **(given or {})}},
    )


LOGISTIC = _described(
    "LOGISTIC",
    "The logistic function of a quantized tensor.",
    partial(_by_function, function=_logistic),
    "!quant.uniform<i8:f32, 0.00390625:-128>",
    stages=_OF_FUNCTION,
    deviations=_POWER_OF_TWO,
)
TANH = _described(
    "TANH",
    "The hyperbolic tangent of a quantized tensor.",
    partial(_by_function, function=_hyperbolic_tangent),
    "!quant.uniform<i8:f32, 0.0078125:0>",
    stages=_OF_FUNCTION,
    deviations=_POWER_OF_TWO,
)
RELU, RELU6, RELU_N1_TO_1 = (
    _described(name, summary, partial(_relu, name=name), "!quant.uniform<i8:f32, 0.04:-128>")
    for name, summary in (
        ("RELU", "A quantized tensor without its negative numbers, requantized."),
        ("RELU6", "A quantized tensor clamped to 0 to 6, requantized."),
        ("RELU_N1_TO_1", "A quantized tensor clamped to -1 to 1, requantized."),
    )
)
LEAKY_RELU = _described(
    "LEAKY_RELU",
    "A quantized tensor with its negative numbers multiplied by alpha, requantized.",
    _leaky_relu,
    "!quant.uniform<i8:f32, 0.04:-100>",
    attributes=(Attribute(name="alpha", kind=Kind.NUMBER, description="The factor of negative numbers, in f32."),),
    given={"alpha": 0.1},
)
HARD_SWISH = _described(
    "HARD_SWISH",
    "x * clamp(x + 3, 0, 6) / 6 of a quantized tensor, in int16.",
    _hard_swish,
    "!quant.uniform<i8:f32, 0.04:-100>",
    stages=(
        stage("product", "p, of int16.", {"i16": 1}),
        stage("gate", "(r + 32768) >> 1, of int16.", {"i16": 1}),
        _SCALED,
        _TABLE,
    ),
    storages=BYTES,
    deviations=("Ratios of scales whose shift LiteRT's int16 does not have are refused.",),
)
