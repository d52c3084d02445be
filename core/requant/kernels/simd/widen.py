"""The floats of a tensor as f32, sixteen at once: f16 and bf16 exactly, f64 rounded (RNE)."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload

from requant.kernels.jit.jit import Array, Number, device, intrinsic
from requant.kernels.jit.processor import HAS_F16_CONVERSION
from requant.kernels.simd.memory import load_as
from requant.kernels.simd.vector import LANES, Vector
from requant.kernels.simd.vectors import (
    bits_as,
    convert,
    select,
    splat,
)

_SCALE = np.float32(2.0**112)
_SPECIAL = np.int32(0x0F800000)
_INFINITY = np.int32(0x7F800000)
_QUIET = np.int32(0x00400000)


@device
def _f32_of_f16_by_arithmetic(bits: Number) -> Number:
    """Exponent and mantissa become those of an f32 that is 2^112 times smaller, a subnormal for a subnormal."""
    wide = convert(bits, np.int32)
    small = (wide & splat(np.int32(0x7FFF))) << splat(np.int32(13))
    value = bits_as(bits_as(small, np.float32) * splat(_SCALE), np.int32)
    value = value | select(small >= splat(_SPECIAL), splat(_INFINITY), splat(np.int32(0)))
    value = value | select(small > splat(_SPECIAL), splat(_QUIET), splat(np.int32(0)))
    return bits_as(value | ((wide & splat(np.int32(0x8000))) << splat(np.int32(16))), np.float32)


@intrinsic
def _f32_of_f16_by_instruction(typing_context: Any, bits: Vector) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        halves = builder.bitcast(arguments[0], ir.VectorType(ir.HalfType(), LANES))
        return builder.fpext(halves, ir.VectorType(ir.FloatType(), LANES))

    return Vector(types.float32)(bits), generate


f32_of_f16: Callable[[Number], Number] = _f32_of_f16_by_instruction if HAS_F16_CONVERSION else _f32_of_f16_by_arithmetic
"""The f32 of each f16 with these bits. A NaN is quiet and keeps its sign and payload."""


@device
def f32_of_bf16(bits: Number) -> Number:
    """The f32 of each bf16 with these bits: a shift, by which a signalling NaN stays one."""
    return bits_as(convert(bits, np.int32) << splat(np.int32(16)), np.float32)


def widened(vector: Number) -> Number:
    """A vector of f32, f16 or bf16 as f32. numba has arrays of neither: f16 come as int16, bf16 as uint16."""
    raise NotImplementedError("for kernels only")


@overload(widened, strict=False)
def _widened(vector: Vector) -> Callable[[Number], Number]:
    if vector.element is types.float32:
        return lambda vector: vector
    if vector.element is types.int16:
        return lambda vector: f32_of_f16(vector)
    return lambda vector: f32_of_bf16(vector)


class FloatKind(IntEnum):
    """What the bytes of an array are."""

    F32 = 0
    F16 = 1
    BF16 = 2
    F64 = 3


_F32, _F16, _BF16 = int(FloatKind.F32), int(FloatKind.F16), int(FloatKind.BF16)


@device
def load_f32(source: Array, index: Number, kind: int, mask: Number = None) -> Number:
    """The floats from `index` on in an array of bytes; `kind` as FloatKind."""
    if kind == _F32:
        return load_as(source, index, np.float32, mask)
    if kind == _F16:
        return widened(load_as(source, index, np.int16, mask))
    if kind == _BF16:
        return widened(load_as(source, index, np.uint16, mask))
    return convert(load_as(source, index, np.float64, mask), np.float32)
