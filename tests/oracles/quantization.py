"""The slow truth: every rule in exact integers and fractions, from the specification, importing nothing of ours.

Real inputs are Python floats (doubles that hold f32 values exactly). `f32(v)` rounds an exact fraction to the nearest
f32.
Each function names the source that it was written from.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import NamedTuple

HALF = Fraction(1, 2)


class Stored(NamedTuple):
    """A stored integer and what the report counts for it."""

    value: int
    low: bool = False
    high: bool = False
    nan: bool = False


# --- Rounding a fraction to an integer (section 0) -------------------------------------------------------------------


def nearest_even(value: Fraction) -> int:
    """RNE."""
    return round(value)


def nearest_away(value: Fraction) -> int:
    """RNA."""
    magnitude = math.floor(abs(value) + HALF)
    return -magnitude if value < 0 else magnitude


def nearest_up(value: Fraction) -> int:
    """RNU: ties toward plus infinity."""
    return math.floor(value + HALF)


# --- Rounding to a binary float --------------------------------------------------------------------------------------


def nearest_float(value: Fraction, precision: int, last_place: int, largest_exponent: int) -> float:
    """Round to the nearest float of `precision` bits, ties to even; beyond the range an infinity.

    `last_place`: the exponent of the last place of subnormals. In integers: fractions take ten times as long.
    """
    if value == 0:
        return 0.0
    numerator, denominator = abs(value.numerator), value.denominator
    place = max(_floor_log2(abs(value)) - precision + 1, last_place)
    # The magnitude in units of 2^place.
    whole, rest = divmod(numerator << max(-place, 0), denominator << max(place, 0))
    denominator <<= max(place, 0)
    if 2 * rest > denominator or (2 * rest == denominator and whole % 2):
        whole += 1
    # It is 2^(largest_exponent + 1) or more if it has so many bits.
    result = math.inf if whole.bit_length() + place > largest_exponent + 1 else math.ldexp(whole, place)
    return -result if value < 0 else result


def f32(value: Fraction) -> float:
    """Round to the nearest f32, ties to even, with subnormals; beyond the range an infinity."""
    return nearest_float(value, 24, -149, 127)


def _floor_log2(value: Fraction) -> int:
    """Of a positive number."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    reached = value.denominator << max(exponent, 0) <= value.numerator << max(-exponent, 0)
    return exponent if reached else exponent - 1


def from_bits(pattern: str) -> float:
    """The f32 of a bit pattern in hexadecimal."""
    value: float = struct.unpack(">f", bytes.fromhex(pattern))[0]
    return value


def to_bits(value: float) -> str:
    """The bit pattern of an f32 in hexadecimal."""
    return struct.pack(">f", value).hex()


def divide_f32(x: float, s: float) -> float:
    """f32(x / s) for a positive finite s."""
    if math.isnan(x) or math.isinf(x):
        return x
    quotient = f32(Fraction(x) / Fraction(s))
    return math.copysign(quotient, x)


def add_f32(a: float, b: int) -> float:
    """f32(a + f32(b))."""
    return a if not math.isfinite(a) else f32(Fraction(a) + Fraction(f32(Fraction(b))))


def wrap32(value: int) -> int:
    """value mod 2^32 in [-2^31, 2^31)."""
    return (value + 2**31) % 2**32 - 2**31


def _clamped(total: int, lo: int, hi: int) -> Stored:
    return Stored(min(max(total, lo), hi), low=total < lo, high=total > hi)


# --- Quantize --------------------------------------------------------------------------------------------------------


def quantize_stablehlo(x: float, s: float, z: int, lo: int, hi: int) -> Stored:
    """StableHLO uniform_quantize: clamp(x/s + z) in f32, RNE, saturating conversion; NaN gives 0."""
    shifted = add_f32(divide_f32(x, s), z)
    if math.isnan(shifted):
        return Stored(0, nan=True)
    lowest, highest = f32(Fraction(lo)), f32(Fraction(hi))
    clamped = min(max(shifted, lowest), highest)
    value = min(max(nearest_even(Fraction(clamped)), -(2**31)), 2**31 - 1)
    if math.isinf(shifted):
        return Stored(value, low=shifted < 0, high=shifted > 0)
    ideal = nearest_even(Fraction(shifted))
    return Stored(value, low=ideal < lo, high=ideal > hi)


def quantize_onnx(x: float, s: float, z: int, lo: int, hi: int) -> Stored:
    """onnxruntime QuantizeLinear: sat(RNE(f32(x/s)) + z); NaN gives lo, infinities saturate."""
    quotient = divide_f32(x, s)
    if math.isnan(quotient):
        return Stored(lo, nan=True)
    if math.isinf(quotient):
        return Stored(hi, high=True) if quotient > 0 else Stored(lo, low=True)
    return _clamped(nearest_even(Fraction(quotient)) + z, lo, hi)


def quantize_litert(x: float, s: float, z: int, lo: int, hi: int) -> Stored:
    """LiteRT QUANTIZE, reference kernel: sat(cvt32(RNA(f32(x/s))) + z), x86's conversion, wrapping addition."""
    quotient = divide_f32(x, s)
    fits = math.isfinite(quotient) and -(2**31) <= nearest_away(Fraction(quotient)) < 2**31
    converted = nearest_away(Fraction(quotient)) if fits else -(2**31)
    stored = _clamped(wrap32(converted + z), lo, hi)
    if math.isnan(x):
        return Stored(stored.value, nan=True)
    if not fits and not stored.low and not stored.high:
        return stored._replace(low=True)
    return stored


# --- Dequantize ------------------------------------------------------------------------------------------------------


def dequantize(q: int, s: float, z: int) -> float:
    """The dequantization that most systems share: f32(f32(q - z) * s), q - z wrapping in int32."""
    return f32(Fraction(f32(Fraction(wrap32(q - z)))) * Fraction(s))


def dequantize_litert(q: int, s: float, z: int) -> float:
    """LiteRT DEQUANTIZE: f32(f64(s) * (q - z)), the product rounded to f64 first."""
    return f32(Fraction(float(Fraction(s) * (q - z))))


# --- Multiplier and shift --------------------------------------------------------------------------------------------


def _significand(d: Fraction) -> tuple[Fraction, int]:
    """(f, e) with d = f * 2^e and 0.5 <= |f| < 1."""
    exponent = _floor_log2(abs(d)) + 1
    return d / Fraction(2) ** exponent, exponent


def litert_multiplier(d: float, *, single: bool = False) -> tuple[int, int]:
    """LiteRT QuantizeMultiplier."""
    if d == 0:
        return 0, 0
    f, e = _significand(Fraction(d))
    m = nearest_away(f * 2**31)
    if m == 2**31:
        m, e = 2**30, e + 1
    if e < -31:
        return 0, 0
    if single and e > 30:
        return 2**31 - 1, 30
    return m, e


def tosa_multiplier(scale: float, width: int = 32) -> tuple[int, int]:
    """MLIR computeMultiplierAndShift."""
    b = width - 1
    if scale == 0:
        return 0, b
    f, e = _significand(Fraction(scale))
    m = nearest_away(f * 2**b)
    if m == 2**b:
        m, e = m // 2, e + 1
    shift = b - e
    if shift > 62:
        return m >> min(31, shift - 62), 62
    return m, shift


# --- Requantize ------------------------------------------------------------------------------------------------------


def multiply_double(x: int, m: int, shift: int) -> int:
    """LiteRT, double rounding: RDBPOT(SRDHM(wrap32(x * 2^max(shift,0)), m), max(-shift,0)), as in gemmlowp."""
    left = wrap32(x * 2 ** max(shift, 0))
    high = 2**31 - 1 if left == m == -(2**31) else nearest_up(Fraction(left * m, 2**31))
    return nearest_away(Fraction(high, 2 ** max(-shift, 0)))


def multiply_single(x: int, m: int, shift: int) -> int | None:
    """LiteRT, single rounding: RNU(x * m * 2^(shift - 31)); None where the result does not fit int32."""
    y = nearest_up(Fraction(x * m) * Fraction(2) ** (shift - 31))
    return y if -(2**31) <= y < 2**31 else None


def tosa_rescale(v: int, m: int, shift: int, *, double: bool) -> int | None:
    """TOSA 1.0 RESCALE, scale32, without the zero points; None where a REQUIRE fails."""
    if not (m >= 0 and 2 <= shift <= 62 and -(2 ** (shift - 1)) <= v < 2 ** (shift - 1)):
        return None
    r = 2 ** (shift - 1)
    if double and shift > 31:
        r += 2**30 if v >= 0 else -(2**30)
    return math.floor(Fraction(v * m + r, 2**shift))


def rescaled(scaled: int, z_out: int, lo: int, hi: int) -> Stored:
    """TOSA RESCALE: sat(scaled + z_out); `scaled` is what the scheme makes of q - z_in."""
    return _clamped(scaled + z_out, lo, hi)


def rescaled_litert(scaled: int, z_out: int, lo: int, hi: int) -> Stored:
    """LiteRT QUANTIZE of integers, with the addition in int32 as the compiled kernels do it (seen live)."""
    return _clamped(wrap32(scaled + z_out), lo, hi)
