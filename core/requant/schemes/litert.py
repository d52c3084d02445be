"""LiteRT: a 31-bit multiplier and a shift, positive to the left."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np

from requant.errors import ParameterError
from requant.formats.rounding import Rounding
from requant.kernels.convert.requantize.rules import FixedPointRule, FloatRule, Requirement
from requant.schemes import float_factor
from requant.schemes.scheme import (
    INT32,
    INT32_MAX,
    Factor,
    FixedPoint,
    Float,
    Multiplier,
    Prepared,
    Scheme,
    Sum,
    normalized,
)

HIGH_MULTIPLY = "SRDHM(a, b) = floor((a*b + 2^30) / 2^31)"
ROUNDING_DIVIDE = "RDBPOT(x, n) = RNA(x / 2^n)"
FITS_INT32 = "the input minus its zero point must fit int32"
FITS_INT48 = "the input minus its zero point must lie in [-2^47, 2^47)"
SCALED_FITS_INT32 = "the scaled value must fit int32"
SUM_FITS_INT32 = "the scaled value plus the output zero point must fit int32"

INFINITE_SHIFT = (1 << 31) - 1
"""The shift of infinities and of NaN in `integer_frexp`."""


def quantize_multiplier(factor: float) -> Multiplier:
    """QuantizeMultiplier: factor ~ m * 2^(shift - 31), positive shift left. Below about 2^-32 it is (0, 0)."""
    if factor == 0.0:
        return Multiplier(0, 0)
    multiplier, shift = normalized(factor, 31)
    return Multiplier(0, 0) if shift < -31 else Multiplier(multiplier, shift)


def at_least_zero(factor: float) -> None:
    """Raise ParameterError for a negative factor."""
    if factor < 0.0:
        raise ParameterError(f"the scheme needs a factor of at least 0; this one is {factor!r}")


def quantize_multiplier_at_least_zero(factor: float) -> Multiplier:
    """QuantizeMultiplier for a factor of at least 0."""
    at_least_zero(factor)
    return quantize_multiplier(factor)


def _single_rounding(factor: float) -> Multiplier:
    """QuantizeMultiplier with shifts above 30 replaced by (2^31 - 1, 30)."""
    derived = quantize_multiplier_at_least_zero(factor)
    return Multiplier(INT32_MAX, 30) if derived.shift > 30 else derived


def integer_frexp(value: float) -> tuple[int, int]:
    """LiteRT's IntegerFrExp, frexp for processors without floats: value ~ fraction * 2^(shift - 31).

    |fraction| lies in [2^30, 2^31]; ties of its rounding go toward zero.
    fraction = 2^30 + (mantissa >> 22), plus 1 where the lower 22 bits exceed 2^21; shift = exponent field - 1022.
    The fraction can be 2^31. A subnormal is read as if it had the hidden one. NaN is (0, INFINITE_SHIFT) where one of
    the upper 30 bits of its mantissa is set; infinities, and other NaN, have a fraction of the largest int64 or the
    smallest.
    """
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    exponent, mantissa = bits >> 52 & 0x7FF, bits & ((1 << 52) - 1)
    negative = bits >> 63
    if exponent == 0 and mantissa == 0:
        return 0, 0
    if exponent == 0x7FF:
        if mantissa >> 22:
            return 0, INFINITE_SHIFT
        return (-(1 << 63) if negative else (1 << 63) - 1), INFINITE_SHIFT
    fraction = (1 << 30) + (mantissa >> 22) + (mantissa & ((1 << 22) - 1) > 1 << 21)
    return (-fraction if negative else fraction), exponent - 1022


def _emulate_float(factor: float) -> Multiplier:
    """QuantizeMultiplier with IntegerFrExp in the place of frexp: ties of the multiplier go toward zero."""
    multiplier, shift = integer_frexp(factor)
    if multiplier == 1 << 31:
        multiplier, shift = multiplier >> 1, shift + 1
    return Multiplier(0, 0) if shift < -31 else Multiplier(multiplier, shift)


def right_shift(shift: int) -> int:
    """The right shift of the whole product that LiteRT's shift stands for."""
    return 31 - shift


def prepare(multiplier: Multiplier) -> Prepared:
    """A multiplier for v in int32."""
    return Prepared(multiplier.multiplier, right_shift(multiplier.shift), 31)


def reduced_multiplier(multiplier: int) -> int:
    """The 16-bit multiplier of 64-bit accumulators: the upper 16 bits, rounded up from the half, at most 2^15 - 1."""
    return (multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF


def reduced(multiplier: Multiplier) -> Multiplier:
    """What a multiplier stands for once it is reduced to 16 bits."""
    return Multiplier(reduced_multiplier(multiplier.multiplier) << 16, multiplier.shift)


def prepare_int64(multiplier: Multiplier) -> Prepared:
    """The reduced multiplier, for v of 48 bits, and the right shift 15 - shift."""
    return Prepared(reduced_multiplier(multiplier.multiplier), right_shift(multiplier.shift) - 16, 47)


LITERT = Scheme(
    name="litert",
    summary="LiteRT's reference kernels: 31-bit multiplier, positive shift left, two roundings.",
    derivation="d = f * 2^e, 0.5 <= |f| < 1: m = RNA(f * 2^31), shift = e; where m = 2^31, m = 2^30, shift = e + 1; "
    "then where shift < -31, m = 0, shift = 0",
    source="LiteRT quantization_util.cc QuantizeMultiplier, common.cc MultiplyByQuantizedMultiplier",
    convention="m * 2^(shift - 31)",
    formula="RDBPOT(SRDHM(wrap32(v * 2^max(shift, 0)), m), max(-shift, 0)) + z_out, the sum wrapping in int32",
    where=f"{HIGH_MULTIPLY}, saturating; {ROUNDING_DIVIDE}",
    rounding=Rounding.DOUBLE,
    factor=Factor.F64_OF_F32,
    multiplier_of=quantize_multiplier,
    right_shift=right_shift,
    multipliers=INT32,
    shifts=(-31, 31),
    stage=FixedPoint(
        rule=FixedPointRule.DOUBLE, prepare=prepare, total=Sum.WRAPS, demands={Requirement.VALUE: FITS_INT32}
    ),
)
LITERT_EMULATE_FLOAT = replace(
    LITERT,
    name="litert_emulate_float",
    summary="LiteRT built with TFLITE_EMULATE_FLOAT: as litert, but a tie of the multiplier's own rounding goes toward "
    "zero.",
    derivation="as litert, but ties of f * 2^31 go toward zero, and a subnormal d is read as if it had a hidden one",
    source="LiteRT quantization_util.cc QuantizeMultiplier with IntegerFrExp (TFLITE_EMULATE_FLOAT)",
    multiplier_of=_emulate_float,
)
LITERT_SINGLE_ROUNDING = replace(
    LITERT,
    name="litert_single_rounding",
    summary="LiteRT built with TFLITE_SINGLE_ROUNDING: the same multiplier, one rounding.",
    derivation="as litert for d >= 0; then where shift > 30, m = 2^31 - 1, shift = 30",
    formula="floor((v * m + 2^(30 - shift)) / 2^(31 - shift)) + z_out, the sum wrapping in int32",
    where="",
    rounding=Rounding.SINGLE,
    multiplier_of=_single_rounding,
    multipliers=(0, INT32_MAX),
    shifts=(-31, 30),
    stage=FixedPoint(
        rule=FixedPointRule.NEAREST_UP,
        prepare=prepare,
        scaled=INT32,
        total=Sum.WRAPS,
        demands={Requirement.VALUE: FITS_INT32, Requirement.SCALED: SCALED_FITS_INT32},
    ),
)
LITERT_INT64 = replace(
    LITERT,
    name="litert_int64",
    summary="LiteRT's 64-bit accumulators (16-bit activations): the multiplier is reduced to 16 bits, one rounding.",
    derivation="as litert for d >= 0",
    source="LiteRT common.cc MultiplyByQuantizedMultiplier of int64",
    convention="m16 * 2^(shift - 15), m16 = floor((m + 2^15) / 2^16), at most 2^15 - 1",
    formula="floor((v * m16 + 2^(14 - shift)) / 2^(15 - shift)) + z_out, the sum wrapping in int32",
    where="",
    rounding=Rounding.SINGLE,
    multiplier_of=quantize_multiplier_at_least_zero,
    multipliers=(0, INT32_MAX),
    shifts=(-31, 7),
    reduced=reduced,
    stage=FixedPoint(
        rule=FixedPointRule.NEAREST_UP,
        prepare=prepare_int64,
        scaled=INT32,
        total=Sum.WRAPS,
        demands={Requirement.VALUE: FITS_INT48, Requirement.SCALED: SCALED_FITS_INT32},
    ),
)
LITERT_FLOAT = replace(
    LITERT,
    name="litert_float",
    summary="LiteRT's float reference path, FULLY_CONNECTED's: no fixed point at all, one f64 product.",
    derivation="m of 53 bits and shift with d = m * 2^-shift exactly",
    source="LiteRT reference/integer_ops/fully_connected.h",
    convention=float_factor.CONVENTION,
    formula="RNA(f64(f64(v) * f)) + z_out, the sum wrapping in int32",
    where="f the f64 m * 2^-shift",
    rounding=Rounding.NEAREST_AWAY,
    multiplier_of=float_factor.of_f64,
    right_shift=float_factor.right_shift,
    multipliers=float_factor.F64_MULTIPLIERS,
    shifts=float_factor.F64_SHIFTS,
    stage=Float(
        rule=FloatRule.F64_AWAY,
        prepare=float_factor.prepare,
        precision=np.float64,
        scaled=INT32,
        total=Sum.WRAPS,
        demands={**float_factor.DEMANDS, Requirement.SCALED: SCALED_FITS_INT32},
    ),
)
ARM_VECTOR = replace(
    LITERT,
    name="arm_vector",
    summary="LiteRT's vector kernels (ARM's SQRDMULH and SRSHL, and their x86 build): as litert, but in the second "
    "rounding ties go up too.",
    source="LiteRT common.h MultiplyByQuantizedMultiplier4Rows",
    formula="RNU(SRDHM(wrap32(v * 2^max(shift, 0)), m) / 2^max(-shift, 0)) + z_out, the sum wrapping in int32",
    where=f"{HIGH_MULTIPLY}, saturating; RNU(x) = floor(x + 1/2)",
    rounding=Rounding.DOUBLE_UP,
    shifts=(-31, 30),
    stage=FixedPoint(
        rule=FixedPointRule.DOUBLE_UP, prepare=prepare, total=Sum.WRAPS, demands={Requirement.VALUE: FITS_INT32}
    ),
)

SCHEMES = (
    LITERT,
    LITERT_EMULATE_FLOAT,
    LITERT_SINGLE_ROUNDING,
    LITERT_INT64,
    LITERT_FLOAT,
    ARM_VECTOR,
)
