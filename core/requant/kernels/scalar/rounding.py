"""Rounding of a float to an integral float, one primitive for each rule, and of a float to a narrower float.

The integral roundings are LLVM's own instructions, or short branch-free sequences of them, on every vector unit;
numpy's and Python's do not vectorize inside numba. They pass NaN and infinities through and work on
f32 and f64 alike.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, cast

import numpy as np
from numba import types
from numba.core.base import BaseContext
from numba.extending import intrinsic

from requant.kernels.jit.jit import Number, device
from requant.kernels.scalar.multiply_add import generate_multiply_add


def _unary(name: str) -> Callable[[Any], Any]:
    @intrinsic
    def rounding(typing_context: Any, value: types.Type) -> tuple[Any, Callable[..., Any]]:
        def generate(context: BaseContext, builder: Any, signature: Any, arguments: Any) -> Any:
            (argument,) = arguments
            return builder.call(builder.module.declare_intrinsic(name, [argument.type]), [argument])

        return value(value), generate

    return cast(Callable[[Any], Any], rounding)


def _fused_multiply_add() -> Callable[[Any, Any, Any], Any]:
    @intrinsic
    def fused(typing_context: Any, a: types.Type, b: types.Type, c: types.Type) -> tuple[Any, Callable[..., Any]]:
        def generate(context: BaseContext, builder: Any, signature: Any, arguments: Any) -> Any:
            return generate_multiply_add(builder, *arguments)

        return a(a, b, c), generate

    return cast(Callable[[Any, Any, Any], Any], fused)


def _reinterpret(target: types.Type) -> Callable[[Any], Any]:
    @intrinsic
    def reinterpret(typing_context: Any, value: types.Type) -> tuple[Any, Callable[..., Any]]:
        def generate(context: BaseContext, builder: Any, signature: Any, arguments: Any) -> Any:
            value_type: Any = context.get_value_type(target)  # type: ignore[no-untyped-call]
            return builder.bitcast(arguments[0], value_type)

        return target(value), generate

    return cast(Callable[[Any], Any], reinterpret)


round_half_even = _unary("llvm.roundeven")
"""RNE: the nearest integer, ties to the even one. IEEE 754 roundToIntegralTiesToEven."""

round_half_away = _unary("llvm.round")
"""RNA: the nearest integer, ties away from zero. C's `round`."""

round_down = _unary("llvm.floor")
"""RD: the largest integer not above."""

round_toward_zero = _unary("llvm.trunc")
"""RTZ: the integer part."""

fused_multiply_add = _fused_multiply_add()
"""a * b + c, rounded once. All of one float type."""

bits_of_f32 = _reinterpret(types.int32)
"""The bit pattern of an f32."""

f32_of_bits = _reinterpret(types.float32)
"""The f32 of a bit pattern."""

bits_of_f64 = _reinterpret(types.int64)
"""The bit pattern of an f64."""

f64_of_bits = _reinterpret(types.float64)
"""The f64 of a bit pattern."""


@device
def round_f32_to_bf16(value: Number) -> Number:
    """The bf16 nearest to an f32 (RNE), as an f32. Overflow gives infinity; NaN stays NaN."""
    bits = np.int64(bits_of_f32(value))
    rounded = np.int32((bits + 0x7FFF + ((bits >> 16) & 1)) & ~0xFFFF)
    return f32_of_bits(rounded) if value == value else value


@device
def round_f32_to_f16(value: Number) -> Number:
    """The f16 nearest to an f32 (RNE), as an f32. Overflow, from 65520 on, gives infinity; NaN stays NaN."""
    bits = np.int64(bits_of_f32(value))
    magnitude = bits & 0x7FFFFFFF
    normal = (magnitude + 0xFFF + ((magnitude >> 13) & 1)) & ~0x1FFF
    normal = np.int64(0x7F800000) if normal >= 0x47800000 else normal
    # Below 2^-14 the last place is 2^-24, whatever the exponent; both products are exact.
    tiny = round_half_even(value * np.float32(16777216.0)) * np.float32(5.9604644775390625e-08)
    signed = f32_of_bits(np.int32(normal | (bits & 0x80000000)))
    rounded = signed if magnitude >= 0x38800000 else tiny
    return rounded if value == value else value


@device
def round_f64_to_f16(value: Number) -> Number:
    """The f16 nearest to an f64 (RNE, once), as an f64. Overflow, from 65520 on, gives infinity; NaN stays NaN."""
    bits = bits_of_f64(value)
    half = np.int64(1) << 41
    normal = f64_of_bits((bits + half - 1 + ((bits >> 42) & 1)) >> 42 << 42)
    if abs(value) < 6.103515625e-05:
        return round_half_even(value * 16777216.0) * 5.9604644775390625e-08
    if abs(normal) >= 65536.0:
        return np.inf if value > 0 else -np.inf
    return normal if value == value else value


class Precision(IntEnum):
    """What the steps of a computation in f32 are rounded to."""

    NATIVE = 0
    F16 = 1
    BF16 = 2


_F16, _BF16 = int(Precision.F16), int(Precision.BF16)


@device
def round_to_precision(value: Number, precision: int) -> Number:
    """The f32 `value` rounded (RNE) to the type that `precision` names, as an f32."""
    if precision == _F16:
        return round_f32_to_f16(value)
    if precision == _BF16:
        return round_f32_to_bf16(value)
    return value


@device
def round_integer_to_precision(value: int, precision: int) -> Number:
    """An integer below 2^53 in magnitude, rounded (RNE) to `precision` significant bits, as an f64."""
    exact = np.float64(value)
    bits = bits_of_f64(exact)
    dropped = 53 - precision
    half = (np.int64(1) << dropped) >> 1
    rounded = (bits + half - 1 + ((bits >> dropped) & 1)) >> dropped << dropped
    return f64_of_bits(rounded) if value != 0 and dropped > 0 else exact
