"""f32 as f16, bf16 and floats of at most 8 bits, rounded once (RNE), sixteen at once. A NaN stays one.

Overflow of f16 and bf16 gives infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from requant.kernels.jit.jit import Array, Number, device, intrinsic
from requant.kernels.jit.processor import HAS_F16_CONVERSION
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.memory import store_as
from requant.kernels.simd.rounding import round_to_f16_by_arithmetic, round_to_precision
from requant.kernels.simd.vector import LANES, Vector
from requant.kernels.simd.vectors import (
    bits_as,
    convert,
    select,
    splat,
)
from requant.kernels.simd.widen import FloatKind

_F32, _F16 = int(FloatKind.F32), int(FloatKind.F16)
_TO_BF16 = int(Precision.BF16)
_SCALE = np.float32(2.0**-112)
_INFINITY = np.int32(0x7F800000)
_QUIET = np.int32(0x200)


@device
def _f16_of_f32_by_arithmetic(value: Number) -> Number:
    """What is an f16 already, 2^112 times smaller, has the exponent and mantissa of the f16, 13 bits higher."""
    rounded = bits_as(select(value == value, round_to_f16_by_arithmetic(value), value), np.int32)
    magnitude = rounded & splat(np.int32(0x7FFFFFFF))
    small = bits_as(bits_as(magnitude, np.float32) * splat(_SCALE), np.int32) >> splat(np.int32(13))
    special = splat(np.int32(0x7C00)) | ((magnitude >> splat(np.int32(13))) & splat(np.int32(0x3FF)))
    special = special | select(magnitude > splat(_INFINITY), splat(_QUIET), splat(np.int32(0)))
    code = select(magnitude >= splat(_INFINITY), special, small)
    return convert(code | ((rounded >> splat(np.int32(16))) & splat(np.int32(0x8000))), np.int16)


@intrinsic
def _f16_of_f32_by_instruction(typing_context: Any, value: Vector) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        halves = builder.fptrunc(arguments[0], ir.VectorType(ir.HalfType(), LANES))
        return builder.bitcast(halves, ir.VectorType(ir.IntType(16), LANES))

    return Vector(types.int16)(value), generate


f16_of_f32: Callable[[Number], Number] = _f16_of_f32_by_instruction if HAS_F16_CONVERSION else _f16_of_f32_by_arithmetic
"""The bits of the f16 nearest to each f32. A NaN is quiet and keeps the bits of its payload that fit."""


@device
def bf16_of_f32(value: Number) -> Number:
    """The bits of the bf16 nearest to each f32. A NaN loses what it has in its lower half, which must not be all."""
    bits = bits_as(round_to_precision(value, _TO_BF16), np.int32)
    return convert(bits >> splat(np.int32(16)), np.int16)


@device
def store_f32(target: Array, index: Number, value: Number, kind: int, mask: Number = None) -> None:
    """Write to an array of bytes that holds f32, f16 or bf16, as `kind` (FloatKind) says."""
    if kind == _F32:
        store_as(target, index, value, np.float32, mask)
    elif kind == _F16:
        store_as(target, index, f16_of_f32(value), np.int16, mask)
    else:
        store_as(target, index, bf16_of_f32(value), np.int16, mask)


_NAN = np.int32(0x7F)


@device
def nearest_codes(magnitude: Number, mantissa_bits: int, bias: int) -> Number:
    """The codes nearest (RNE) to the f32 with these bits, whose signs are clear, as if exponents never ended.

    As `requant.kernels.scalar.small_floats.nearest_code_of_f32`.
    """
    dropped = 23 - mantissa_bits
    odd = (magnitude >> splat(np.int32(dropped))) & splat(np.int32(1))
    rounded = (magnitude + (odd + splat(np.int32((1 << (dropped - 1)) - 1)))) >> splat(np.int32(dropped))
    normal = rounded - splat(np.int32((127 - bias) << mantissa_bits))
    shifter = splat(np.int32((128 - bias + dropped) << 23))
    subnormal = bits_as(bits_as(magnitude, np.float32) + bits_as(shifter, np.float32), np.int32) - shifter
    return select(magnitude >= splat(np.int32((128 - bias) << 23)), normal, subnormal)


@device
def codes_of_e4m3(value: Number) -> Number:
    """The codes of f8E4M3FN nearest to numbers from -448 to 448, with the sign of a zero. NaN gives 0x7F."""
    bits = bits_as(value, np.int32)
    code = nearest_codes(bits & splat(np.int32(0x7FFFFFFF)), 3, 7)
    signed = code | ((bits >> splat(np.int32(24))) & splat(np.int32(0x80)))
    return select(value == value, signed, splat(_NAN))


@device
def codes_of_e2m1(value: Number) -> Number:
    """The codes of f4E2M1FN nearest to numbers from -6 to 6, with the sign of what is below zero. NaN gives 0."""
    bits = bits_as(value, np.int32)
    code = nearest_codes(bits & splat(np.int32(0x7FFFFFFF)), 1, 1)
    nothing = splat(np.int32(0))
    signed = code | select(value < splat(np.float32(0)), splat(np.int32(8)), nothing)
    return select(value == value, signed, nothing)


@device
def codes_of_e2m3(value: Number, negative_zero: Number) -> Number:
    """The codes of f6E2M3FN nearest to numbers from -7.5 to 7.5, with the sign of what becomes 0. -0 gives
    `negative_zero`, and NaN 0x20."""
    bits = bits_as(value, np.int32)
    magnitude = bits & splat(np.int32(0x7FFFFFFF))
    signed = nearest_codes(magnitude, 3, 1) | ((bits >> splat(np.int32(26))) & splat(np.int32(0x20)))
    exact_zero = select(bits < splat(np.int32(0)), splat(negative_zero), splat(np.int32(0)))
    code = select(magnitude == splat(np.int32(0)), exact_zero, signed)
    return select(value == value, code, splat(np.int32(0x20)))
