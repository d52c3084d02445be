"""Real numbers as callers write them: decimal or C99 hexadecimal text to the nearest double."""

from __future__ import annotations

import math
import re
from ctypes import c_float

from requant.errors import ParameterError, excerpt

F32_BITS, F64_BITS = 24, 53


def round_half_away(numerator: int, power: int) -> int:
    """RNA(numerator / 2^power); power >= 1."""
    magnitude = (abs(numerator) + (1 << (power - 1))) >> power
    return -magnitude if numerator < 0 else magnitude


def significand(factor: float, bits: int) -> tuple[int, int]:
    """Return (m, e) with factor ~ m * 2^(e - bits), m = RNA(f * 2^bits), f in [0.5, 1); m can be 2^bits. bits < 53.

    `f * 2^53` is an integer, so nothing is lost before.
    """
    fraction, exponent = math.frexp(factor)
    return round_half_away(int(math.ldexp(fraction, 53)), 53 - bits), exponent


def normalized(factor: float, bits: int) -> tuple[int, int]:
    """The same with m renormalized to 2^(bits-1) when it rounds up to 2^bits. -2^bits stays."""
    multiplier, exponent = significand(factor, bits)
    if multiplier == 1 << bits:
        return multiplier >> 1, exponent + 1
    return multiplier, exponent


def exact(factor: float, bits: int) -> tuple[int, int]:
    """Return (m, s) with factor = m * 2^-s, |m| in [2^(bits-1), 2^bits), or (0, 0). The factor has at most `bits`."""
    fraction, exponent = math.frexp(factor)
    return (int(math.ldexp(fraction, bits)), bits - exponent) if factor else (0, 0)


def rounded_to_f32(factor: float) -> float:
    """f32(factor), which may be infinite. numpy would warn of that, and to silence it takes ten times as long."""
    return c_float(factor).value


def as_f32(factor: float) -> float:
    """f32(factor). Raise ParameterError where that is infinite."""
    rounded = rounded_to_f32(factor)
    if not math.isfinite(rounded):
        raise ParameterError(f"{factor!r} is larger than the largest f32, which the scheme computes with")
    return rounded


_LONGEST = 128
# Every alternative begins with another character or is a prefix-free repetition, so matching is linear.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?", re.ASCII)


def parse_factor(text: str) -> float:
    """Return the f64 nearest to the number in `text` (RNE). Raise ParameterError if it is none, or not finite."""
    if len(text) > _LONGEST:
        raise ParameterError(f"a factor may have at most {_LONGEST} characters; this one has {len(text)}")
    try:
        if _DECIMAL.fullmatch(text):
            value = float(text)
        elif _HEXADECIMAL.fullmatch(text):
            value = float.fromhex(text)
        else:
            raise ParameterError(
                f"'{excerpt(text)}' is not a number; expected decimal text such as 0.0123 or 1e-3, "
                "or a C99 hexadecimal float such as 0x1.8p-5"
            )
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ParameterError(f"'{excerpt(text)}' is larger than the largest double")
    return value
