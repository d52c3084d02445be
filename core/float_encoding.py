"""How a value becomes the code of a float of at most 16 bits, under each authority's rule.

    e = max(floor(log2 |x|), 1 - bias)      q = RNE(|x| / 2^(e - m))
    code = ((e + bias) << m) + q - 2^m, and q alone in the subnormal row; beyond the largest finite code: an overflow

Authorities agree on that, and differ in what an overflow, an infinity and a NaN give: `EncodingRule`. Source:
spec/numerics.md G.1 to G.3. Each rule in RULES is tested against what the system of its name gave.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import PreconditionError, UnsupportedError
from core.kernels import small_floats as kernels
from core.small_floats import SmallFloat, Specials, small_float

Array = NDArray[Any]


class Overflow(StrEnum):
    """What a value beyond the largest finite one gives, and an infinity likewise.

    f4 and f6 have nothing but their largest value to give, and f16 and bf16 give infinity under every rule.
    """

    SATURATING = "saturating"
    """The largest finite value, with the sign. ONNX saturate=1; OCP OFP8 in saturating mode."""

    NON_SATURATING = "non_saturating"
    """Infinity where the format has one, otherwise NaN. ONNX saturate=0, ml_dtypes, MLIR, TOSA, oneDNN."""

    SATURATING_E4M3FN = "saturating_e4m3fn"
    """Saturating for f8E4M3FN, non-saturating for the others. torch 2.13."""


class NanCode(StrEnum):
    """Which of the NaNs of an IEEE format a NaN gives. FN formats have one for each sign, FNUZ formats have one."""

    QUIET = "quiet"
    """The highest mantissa bit only, sign kept: f8E5M2 0x7E, bf16 0x7FC0."""

    ONES = "ones"
    """All mantissa bits, sign kept: f8E5M2 0x7F."""

    PAYLOAD = "payload"
    """The source's highest mantissa bits, sign kept, so that a signalling NaN stays one; at least 1."""

    QUIET_PAYLOAD = "quiet_payload"
    """The same with the highest bit set."""


class FiniteNan(StrEnum):
    """What a NaN gives in a format that has none (f4, f6)."""

    REFUSE = "refuse"
    """A PreconditionError with the index of the first one."""

    ZERO = "zero"
    """+0."""

    OPPOSITE_ZERO = "opposite_zero"
    """Zero with the sign that the NaN does not have: ml_dtypes and the ONNX reference."""


class ScaleRounding(StrEnum):
    """How a value between two powers of two becomes E8M0 (G.3). `nearest` takes ties up."""

    UP = "up"
    DOWN = "down"
    NEAREST = "nearest"


@dataclass(frozen=True, slots=True)
class EncodingRule:
    """What an authority gives where the formats leave a choice.

    `nan` holds for the 8-bit IEEE formats, `f16_nan` for f16, and `bf16_nan` for bf16 (None there: 0xFFFF for either
    sign, torch with AVX-512). `through_f16` rounds an f32 to f16 first and loses the sign of -0 (oneDNN). The last
    three are for f8E8M0FNU: `scale_saturating` keeps finite values at 2^127, `scale_positive_only` makes zero and
    negative values NaN; otherwise their sign is ignored and zero gives 2^-127.
    """

    overflow: Overflow
    nan: NanCode = NanCode.QUIET
    f16_nan: NanCode = NanCode.QUIET
    bf16_nan: NanCode | None = NanCode.QUIET
    finite_nan: FiniteNan = FiniteNan.REFUSE
    through_f16: bool = False
    scale_rounding: ScaleRounding = ScaleRounding.NEAREST
    scale_saturating: bool = False
    scale_positive_only: bool = False


def _onnx(overflow: Overflow, nan: NanCode) -> EncodingRule:
    saturating = overflow is Overflow.SATURATING
    return EncodingRule(
        overflow,
        nan,
        NanCode.PAYLOAD,
        finite_nan=FiniteNan.OPPOSITE_ZERO,
        scale_rounding=ScaleRounding.UP,
        scale_saturating=saturating,
    )


RULES: dict[str, EncodingRule] = {
    "ml_dtypes": EncodingRule(
        Overflow.NON_SATURATING,
        f16_nan=NanCode.PAYLOAD,
        finite_nan=FiniteNan.OPPOSITE_ZERO,
        scale_positive_only=True,
    ),
    "onnx_reference_saturating": _onnx(Overflow.SATURATING, NanCode.QUIET),
    "onnx_reference": _onnx(Overflow.NON_SATURATING, NanCode.QUIET),
    "onnxruntime_saturating": _onnx(Overflow.SATURATING, NanCode.ONES),
    "onnxruntime": _onnx(Overflow.NON_SATURATING, NanCode.ONES),
    "torch": EncodingRule(Overflow.SATURATING_E4M3FN, NanCode.ONES, NanCode.QUIET_PAYLOAD, None),
    "onednn": EncodingRule(Overflow.NON_SATURATING, NanCode.QUIET_PAYLOAD, through_f16=True),
    "ocp_saturating": EncodingRule(Overflow.SATURATING),
    "ocp": EncodingRule(Overflow.NON_SATURATING),
}
"""The rules of G.2 and G.3 by authority. f16 from ml_dtypes is numpy's own type, so numpy's NaN."""


@dataclass(frozen=True, slots=True)
class _SpecialCodes:
    """The kernel's arguments for overflow and NaN, in its order."""

    overflow: int
    nan: int
    smallest_nan: int
    nan_payload: int
    nan_sign: int
    nan_flip: int


def _special_codes(format_: SmallFloat, rule: EncodingRule) -> _SpecialCodes:
    sign, largest = format_.sign_bit, format_.largest_code
    sixteen_bits = format_.width == 16
    saturating = not sixteen_bits and (
        rule.overflow is Overflow.SATURATING
        or (rule.overflow is Overflow.SATURATING_E4M3FN and format_.name == "f8E4M3FN")
    )
    if format_.specials is Specials.FINITE:
        opposite = sign if rule.finite_nan is FiniteNan.OPPOSITE_ZERO else 0
        return _SpecialCodes(largest, 0, 0, 0, opposite, opposite)
    if format_.specials is Specials.FN:
        nan = largest + 1
        return _SpecialCodes(largest if saturating else nan, nan, 0, 0, sign, 0)
    if format_.specials is Specials.FNUZ:
        return _SpecialCodes(largest if saturating else sign, sign, 0, 0, 0, 0)
    infinity = largest + 1
    ones = (1 << format_.mantissa_bits) - 1
    quiet = (ones + 1) >> 1
    chosen = {"f16": rule.f16_nan, "bf16": rule.bf16_nan}.get(format_.name, rule.nan)
    overflow = largest if saturating else infinity
    if chosen is None:
        return _SpecialCodes(overflow, sign | infinity | ones, 0, 0, 0, 0)
    mantissa, payload = {
        NanCode.QUIET: (quiet, 0),
        NanCode.ONES: (ones, 0),
        NanCode.PAYLOAD: (0, ones),
        NanCode.QUIET_PAYLOAD: (quiet, ones),
    }[chosen]
    return _SpecialCodes(overflow, infinity | mantissa, infinity + 1, payload, sign, 0)


def _refuse_nan(values: Array, name: str) -> None:
    nan = np.isnan(values)
    if nan.any():
        index = int(np.argmax(nan))
        raise PreconditionError(f"the value at index {index} is NaN, which {name} does not have", index=index)


def _encode_scale(values: Array, rule: EncodingRule) -> Array:
    if values.dtype != np.float32:
        raise UnsupportedError(f"f8E8M0FNU is encoded from f32; this is {values.dtype}")
    added = {ScaleRounding.UP: 0x7FFFFF, ScaleRounding.DOWN: 0, ScaleRounding.NEAREST: 0x400000}[rule.scale_rounding]
    # 2^-127 itself is a subnormal f32 with the mantissa of a tie; to nearest it stays, rounded up it does not (onnx).
    less = int(rule.scale_rounding is ScaleRounding.NEAREST)
    codes = np.empty(values.size, "|u1")
    beyond = 254 if rule.scale_saturating else 255
    kernels.encode_e8m0(values, codes, added, less, beyond, rule.scale_positive_only)
    return codes


def encode(values: Array, element_name: str, rule: EncodingRule) -> Array:
    """Return the codes of `values` (1-D, f32 or f64) in the format `element_name`: uint8, or uint16 for 16 bits.

    f64 values are rounded once, not by way of f32. Underflow to zero keeps the sign where the format has a negative
    zero. Raises UnsupportedError for an unknown format, for values of another dtype, for f64 to f8E8M0FNU (whose rules
    are stated on the bits of an f32) and for f64 with `through_f16`; PreconditionError for a NaN that `rule` refuses.
    """
    format_ = small_float(element_name)
    if values.dtype not in (np.float32, np.float64):
        raise UnsupportedError(f"{element_name} is encoded from f32 or f64; this is {values.dtype}")
    values = np.ascontiguousarray(values)
    if format_.specials is Specials.SCALE:
        return _encode_scale(values, rule)
    if format_.specials is Specials.FINITE and rule.finite_nan is FiniteNan.REFUSE:
        _refuse_nan(values, element_name)
    codes = np.empty(values.size, format_.dtype)
    special = _special_codes(format_, rule)
    numbers = (
        format_.mantissa_bits,
        format_.bias,
        format_.sign_bit,
        0 if format_.specials is Specials.FNUZ else format_.sign_bit,
        format_.largest_code,
        special.overflow,
        special.nan,
        special.smallest_nan,
        special.nan_payload,
        special.nan_sign,
        special.nan_flip,
    )
    if values.dtype == np.float32:
        kernels.ENCODE_F32[rule.through_f16](values, codes, *numbers)
    elif rule.through_f16:
        raise UnsupportedError("the conversion by way of f16 is one of f32 values; these are f64")
    else:
        kernels.encode_f64(values, codes, *numbers)
    return codes
