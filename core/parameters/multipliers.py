"""From a real factor to the integer multiplier and shift that stand for it, one function for each scheme.

Everything is computed in Python's exact integers and fractions. Source: spec/numerics.md C.2; spec/mlir.md 4.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from fractions import Fraction

from core.errors import ParameterError, UnknownNameError, excerpt
from core.parameters.factors import parse_factor

INT32_MIN = -(1 << 31)
INT32_MAX = (1 << 31) - 1

# Room for every value of every scheme: the longest have 309 digits before the point, or 62 after it.
_EXACT = Context(prec=512, traps=[Inexact])


@dataclass(frozen=True, slots=True)
class Multiplier:
    """An integer multiplier and a shift, in the sign convention of their scheme."""

    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class DerivedMultiplier:
    """A multiplier and shift, the real value that they stand for, and how far that is from the factor.

    `represented` is decimal text with all of the value's digits. `relative_error` is represented / factor - 1.
    """

    multiplier: int
    shift: int
    represented: str
    relative_error: float


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to derive multipliers. `right_shift(shift)` is the s of `represented = multiplier * 2^-s`.

    `scales_in_f32`: the system keeps scales as f32, so that factors are quotients of f32 values.
    """

    name: str
    summary: str
    source: str
    derive: Callable[[float], Multiplier]
    right_shift: Callable[[int], int]
    scales_in_f32: bool = False


def round_half_away(numerator: int, power: int) -> int:
    """RNA(numerator / 2^power) in exact integers; power >= 1."""
    magnitude = (abs(numerator) + (1 << (power - 1))) >> power
    return -magnitude if numerator < 0 else magnitude


def _normalized(factor: float, bits: int) -> tuple[int, int]:
    """Return (m, e) with factor ~ m * 2^(e - bits), m = RNA(f * 2^bits), f the significand in [0.5, 1).

    m is renormalized to 2^(bits-1) when it rounds up to 2^bits. `f * 2^53` is an integer, so nothing is lost before.
    """
    fraction, exponent = math.frexp(factor)
    multiplier = round_half_away(int(math.ldexp(fraction, 53)), 53 - bits)
    if multiplier == 1 << bits:
        return multiplier >> 1, exponent + 1
    return multiplier, exponent


def litert(factor: float) -> Multiplier:
    """LiteRT's QuantizeMultiplier: factor ~ m * 2^(shift - 31), positive shift left. Below about 2^-32 it is (0, 0)."""
    if factor == 0.0:
        return Multiplier(0, 0)
    multiplier, shift = _normalized(factor, 31)
    return Multiplier(0, 0) if shift < -31 else Multiplier(multiplier, shift)


def litert_single_rounding(factor: float) -> Multiplier:
    """As `litert`, for factors >= 0, with shifts above 30 replaced by (2^31 - 1, 30)."""
    if factor < 0.0:
        raise ParameterError(f"single rounding needs a factor of at least 0; this one is {factor!r}")
    derived = litert(factor)
    return Multiplier(INT32_MAX, 30) if derived.shift > 30 else derived


def _tosa(factor: float, bits: int) -> Multiplier:
    multiplier, exponent = _normalized(factor, bits)
    shift = bits - exponent
    if shift > 62:
        return Multiplier(multiplier >> min(31, shift - 62), 62)
    if shift < 2:
        largest = math.ldexp(1.0, bits - 1)
        raise ParameterError(
            f"{factor!r} needs shift {shift}, and TOSA's are 2 to 62: the factor must be below {largest!r}"
        )
    return Multiplier(multiplier, shift)


def tosa(factor: float) -> Multiplier:
    """TOSA's scale32 as MLIR derives it: factor ~ m * 2^-shift, m < 2^31, 2 <= shift <= 62.

    A negative factor gives a negative multiplier, as in MLIR; RESCALE does not take it.
    """
    return _tosa(factor, 31)


def tosa_scale16(factor: float) -> Multiplier:
    """TOSA's scale16 as MLIR derives it: factor ~ m * 2^-shift, m < 2^15, 2 <= shift <= 62."""
    return _tosa(factor, 15)


_LITERT_SOURCE = "LiteRT QuantizeMultiplier; spec/numerics.md C.2"
_TOSA_SOURCE = "MLIR computeMultiplierAndShift; spec/mlir.md 4.6"


def _litert_scheme(name: str, summary: str, derive: Callable[[float], Multiplier]) -> Scheme:
    return Scheme(name, summary, _LITERT_SOURCE, derive, lambda shift: 31 - shift, scales_in_f32=True)


def _tosa_scheme(name: str, summary: str, derive: Callable[[float], Multiplier]) -> Scheme:
    return Scheme(name, summary, _TOSA_SOURCE, derive, lambda shift: shift)


SCHEMES: Mapping[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        _litert_scheme("litert", "31-bit multiplier, positive shift left, double rounding", litert),
        _litert_scheme("litert_single_rounding", "the same with single rounding", litert_single_rounding),
        _tosa_scheme("tosa", "scale32: 31-bit multiplier, right shift", tosa),
        _tosa_scheme("tosa_scale16", "scale16: 15-bit multiplier, right shift", tosa_scale16),
    )
}


def scheme_named(name: str) -> Scheme:
    """Return the scheme of that name, or raise UnknownNameError listing those that exist."""
    scheme = SCHEMES.get(name)
    if scheme is None:
        raise UnknownNameError(f"no scheme is named '{excerpt(name)}'; there are {', '.join(SCHEMES)}")
    return scheme


def represented(multiplier: Multiplier, scheme: Scheme) -> Fraction:
    """The exact real value that a multiplier and shift stand for."""
    return Fraction(multiplier.multiplier) / Fraction(2) ** scheme.right_shift(multiplier.shift)


def derive_multiplier(text: str, scheme: str) -> DerivedMultiplier:
    """Derive multiplier and shift for the factor in `text` (decimal or C99 hexadecimal, read as f64) by the scheme."""
    rule = scheme_named(scheme)
    factor = parse_factor(text)
    derived = rule.derive(factor)
    value = represented(derived, rule)
    error = value / Fraction(factor) - 1 if factor else Fraction(0)
    return DerivedMultiplier(derived.multiplier, derived.shift, _decimal_text(value), float(error))


def _decimal_text(value: Fraction) -> str:
    """Return all digits of `value`, whose denominator is a power of two. It may be 2^1024, which no double holds."""
    return str(_EXACT.divide(Decimal(value.numerator), Decimal(value.denominator)))
