"""QONNX's quantizers in exact fractions, one element at a time, written from the package's documentation and importing
nothing of ours. Numbers are finite; each step in f32 is rounded once.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tests.oracles.quantization import HALF, f32

MODES = ("ROUND", "HALF_EVEN", "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN")


def _f32(exact: Fraction) -> Fraction:
    return Fraction(f32(exact))


def rounded(v: Fraction, mode: str) -> Fraction:
    magnitude = abs(v)
    match mode:
        case "CEIL":
            return Fraction(math.ceil(v))
        case "FLOOR":
            return Fraction(math.floor(v))
        case "UP":
            magnitude = Fraction(math.ceil(magnitude))
        case "DOWN":
            magnitude = Fraction(math.floor(magnitude))
        case "HALF_UP":
            magnitude = Fraction(math.floor(_f32(magnitude + HALF)))
        case "HALF_DOWN":
            magnitude = Fraction(math.ceil(_f32(magnitude - HALF)))
        case _:
            return Fraction(round(v))
    return -magnitude if v < 0 else magnitude


def _clamped(v: Fraction, bits: int, signed: bool, narrow: bool) -> Fraction:
    if signed:
        low, high = -(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1
    else:
        low, high = 0, 2**bits - 1 - narrow
    return min(max(v, _f32(Fraction(low))), _f32(Fraction(high)))


def _shifted(x: float, scale: float, zero: float) -> Fraction:
    return _f32(_f32(Fraction(x) / Fraction(scale)) + Fraction(zero))


def quant(x: float, scale: float, zero: float, bits: int, *, signed: bool, narrow: bool, mode: str) -> Fraction:
    v = _shifted(x, scale, zero)
    of_one_bit = bits == 1 and signed
    q = Fraction(1 if v >= 0 else -1) if of_one_bit else rounded(_clamped(v, bits, signed, narrow), mode)
    return _f32(_f32(q - Fraction(zero)) * Fraction(scale))


def trunc_1(x: float, scale: float, zero: float, bits: tuple[int, int], mode: str) -> Fraction:
    integer = Fraction(round(_shifted(x, scale, zero)))
    q = rounded(_f32(integer / Fraction(2) ** (bits[0] - bits[1])), mode)
    return _f32(_f32(q - Fraction(zero)) * Fraction(scale))


def trunc_2(
    x: float, scale: float, zero: float, out_scale: float, bits: int, *, signed: bool, narrow: bool, mode: str
) -> Fraction:
    """The ratio of the scales is near a power of two: no tie of its logarithm."""
    ratio = _f32(Fraction(out_scale) / Fraction(scale))
    step = Fraction(2) ** round(math.log2(ratio))
    integer = Fraction(round(_shifted(x, scale, zero)))
    q = rounded(_clamped(_f32(integer / step), bits, signed, narrow), mode)
    return _f32(_f32(q - _f32(Fraction(zero) / step)) * Fraction(out_scale))


def float_quant(x: float, scale: float, e: int, m: int, bias: int, max_val: float, mode: str) -> tuple[Fraction, bool]:
    """With saturation, and whether it was beyond the largest number.

    The logarithm is one of f32: a number just below a power of two has the exponent of that power.
    """
    v = _f32(Fraction(x) / Fraction(scale))
    magnitude = _f32(abs(v) + Fraction(2) ** -126)
    exponent = math.floor(f32(_log2(magnitude)))
    step = Fraction(2) ** (max(exponent, 1 - bias) - m)
    q = _f32(step * rounded(_f32(v / step), mode))
    largest = min((2 - Fraction(2) ** -m) * Fraction(2) ** (2**e - 1 - bias), Fraction(max_val))
    return _f32(min(max(q, -largest), largest) * Fraction(scale)), abs(q) > largest


def _log2(value: Fraction) -> Fraction:
    """Of a positive number, in the precision of f64: from its nearer power of two, where little is lost."""
    exponent = round(math.log2(value))
    return exponent + Fraction(math.log1p(float(value / Fraction(2) ** exponent - 1)) / math.log(2))
