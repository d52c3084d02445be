"""f32 as f16 and bf16, rounded once (RNE), sixteen at once. Overflow gives infinity; a NaN stays one."""

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
