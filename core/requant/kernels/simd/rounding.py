"""Rounding of vectors of floats: to integral floats by each rule, and to narrower floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload

from requant.formats.rounding import Rounding
from requant.kernels.jit.jit import Number, device, intrinsic
from requant.kernels.jit.processor import HAS_AVX, HAS_AVX512F, HAS_F16_CONVERSION, IS_X86
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.vector import (
    LANES,
    Generated,
    Vector,
    call_llvm,
    llvm_vector,
)
from requant.kernels.simd.vectors import (
    bits_as,
    convert,
    down,
    half_away,
    half_even,
    magnitude,
    one_like,
    ramp,
    select,
    splat,
    toward_zero,
    up,
    zero_like,
)

_NEAREST_EVEN = Rounding.NEAREST_EVEN.code
_NEAREST_AWAY = Rounding.NEAREST_AWAY.code
_NEAREST_UP = Rounding.NEAREST_UP.code
_TOWARD_ZERO = Rounding.TOWARD_ZERO.code
_FLOOR = Rounding.FLOOR.code
_CEILING = Rounding.CEILING.code
_STOCHASTIC = Rounding.STOCHASTIC.code
_F16 = int(Precision.F16)


# 1.5 * 2^23 and 1.5 * 2^52, whose last place is 1, and their bits.
_SHIFTER = np.float32(12582912.0)
_SHIFTER_BITS = np.int32(0x4B400000)
_SHIFTER_F64 = np.float64(6755399441055744.0)
_SHIFTER_F64_BITS = np.int64(0x4338000000000000)
# By the control register, which nothing here changes: to nearest, ties to even.
_CURRENT_DIRECTION = 4


def nearest_integers(value: Number) -> Number:
    """RNE of each f32 below 2^22 as an int32, of each f64 below 2^51 as an int64.

    For every other value, infinities and NaN among them, an integer at least as large as 2^22 - 1, or 2^51 - 1.
    """
    raise NotImplementedError("for kernels only")


@intrinsic
def _nearest_by_instruction(typing_context: Any, value: Vector) -> Generated:
    """RNE of each f32, and -2^31 where int32 does not hold that, or of NaN.

    That is x86's cvtps2dq, by its name: LLVM's own conversions leave undefined what does not fit.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (whole,) = arguments
        if HAS_AVX512F:
            kind = llvm_vector(types.int32)
            every, rounding = ir.IntType(16)(-1), ir.IntType(32)(_CURRENT_DIRECTION)
            nothing = ir.Constant(kind, [0] * LANES)
            return call_llvm(builder, "llvm.x86.avx512.mask.cvtps2dq.512", kind, [whole, nothing, every, rounding])
        name, lanes = ("llvm.x86.avx.cvt.ps2dq.256", 8) if HAS_AVX else ("llvm.x86.sse2.cvtps2dq", 4)
        parts = []
        for begin in range(0, LANES, lanes):
            part = builder.shuffle_vector(whole, whole, _places(range(begin, begin + lanes)))
            parts.append(call_llvm(builder, name, llvm_vector(types.int32, lanes), [part]))
        while len(parts) > 1:
            lanes *= 2
            parts = [
                builder.shuffle_vector(low, high, _places(range(lanes)))
                for low, high in zip(parts[::2], parts[1::2], strict=True)
            ]
        return parts[0]

    return Vector(types.int32)(value), generate


def _places(numbers: range) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(numbers)), list(numbers))


@overload(nearest_integers, strict=False)
def _nearest_integers(value: Vector) -> Callable[[Number], Number]:
    # The addition of a number whose last place is 1 rounds, and the integer is in the bits of the sum.
    if value.element is types.float32:
        if IS_X86:
            return lambda value: _nearest_by_instruction(value)
        return lambda value: bits_as(value + splat(_SHIFTER), np.int32) - splat(_SHIFTER_BITS)
    return lambda value: bits_as(value + splat(_SHIFTER_F64), np.int64) - splat(_SHIFTER_F64_BITS)


@device
def draw(seed: Number, index: Number) -> Number:
    """32 uniformly distributed bits for each of the elements from `index` on (the finalizer of SplitMix64).

    A counter and not a sequence, so that any order and any number of threads draw the same for the same element.
    """
    z = splat(np.uint64(seed)) + ramp(np.uint64(index) + np.uint64(1)) * splat(np.uint64(0x9E3779B97F4A7C15))
    z = (z ^ (z >> splat(np.uint64(30)))) * splat(np.uint64(0xBF58476D1CE4E5B9))
    z = (z ^ (z >> splat(np.uint64(27)))) * splat(np.uint64(0x94D049BB133111EB))
    return (z ^ (z >> splat(np.uint64(31)))) >> splat(np.uint64(32))


@device
def _drawn_outward(value: Number, distance: Number, seed: Number, index: Number) -> Number:
    """Whether a value that lies `distance` from its integer part goes to the next integer away from zero: upwards where
    drawn / 2^32 is below the distance from the floor."""
    scaled = convert(distance, np.float64) * splat(4294967296.0)
    below = convert(draw(seed, index), np.float64)
    far = (scaled > splat(0.0)) & (scaled >= splat(4294967296.0) - below)
    negative = value < zero_like(value)
    return (negative & far) | (~negative & (below < scaled))


@device
def _half_outward(value: Number, distance: Number, upwards: bool) -> Number:
    """The same to the nearest. At a half, up is away from zero for what is not negative."""
    away = value < zero_like(value)
    if upwards:
        away = ~away
    twice, one = distance + distance, one_like(distance)
    return (twice > one) | (away & (twice == one))


@device
def round_by(rule: int, value: Number, seed: Number, index: Number) -> Number:
    """Round to integral floats by `rule`. `index`: that of the first element in its tensor, for STOCHASTIC.

    The last three rules go by the distance from the integer toward zero, which is exact, as the distance from the floor
    is not.
    """
    if rule == _NEAREST_EVEN:
        return half_even(value)
    if rule == _NEAREST_AWAY:
        return half_away(value)
    if rule == _TOWARD_ZERO:
        return toward_zero(value)
    if rule == _CEILING:
        return up(value)
    if rule == _FLOOR:
        return down(value)
    whole = toward_zero(value)
    # Of an infinity this is a NaN, and no comparison holds.
    distance = magnitude(value - whole)
    away = select(value < zero_like(value), down(value), up(value))
    if rule == _STOCHASTIC:
        return select(_drawn_outward(value, distance, seed, index), away, whole)
    return select(_half_outward(value, distance, rule == _NEAREST_UP), away, whole)


@device
def _round_to_bf16(value: Number) -> Number:
    bits = bits_as(value, np.int32)
    odd = (bits >> splat(np.int32(16))) & splat(np.int32(1))
    rounded = (bits + splat(np.int32(0x7FFF)) + odd) & splat(np.int32(-0x10000))
    return bits_as(rounded, np.float32)


@intrinsic
def _round_to_f16_by_instruction(typing_context: Any, value: Vector) -> Generated:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        halves = builder.fptrunc(arguments[0], ir.VectorType(ir.HalfType(), LANES))
        return builder.fpext(halves, ir.VectorType(ir.FloatType(), LANES))

    return value(value), generate


@device
def round_to_f16_by_arithmetic(value: Number) -> Number:
    """The nearest f16 (RNE). NaN gives anything."""
    bits = bits_as(value, np.int32)
    magnitudes = bits & splat(np.int32(0x7FFFFFFF))
    odd = (magnitudes >> splat(np.int32(13))) & splat(np.int32(1))
    normal = (magnitudes + splat(np.int32(0xFFF)) + odd) & splat(np.int32(-0x2000))
    # From 65520 on.
    normal = select(normal >= splat(np.int32(0x47800000)), splat(np.int32(0x7F800000)), normal)
    signed = bits_as(normal | (bits & splat(np.int32(-0x80000000))), np.float32)
    # Below 2^-14 the last place is 2^-24, whatever the exponent; both products are exact.
    tiny = half_even(value * splat(np.float32(2.0**24))) * splat(np.float32(2.0**-24))
    return select(magnitudes >= splat(np.int32(0x38800000)), signed, tiny)


_round_to_f16: Callable[[Number], Number] = (
    _round_to_f16_by_instruction if HAS_F16_CONVERSION else round_to_f16_by_arithmetic
)


@device
def round_to_precision(value: Number, precision: int) -> Number:
    """f32 rounded (RNE) to the type that `precision` names, as f32. Overflow gives infinity; NaN stays NaN."""
    rounded = _round_to_f16(value) if precision == _F16 else _round_to_bf16(value)
    return select(value == value, rounded, value)
