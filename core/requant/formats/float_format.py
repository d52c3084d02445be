"""Rounding of exact numbers to a float format, as MLIR does when it stores a sub-channel scale."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import copysign, frexp, inf, isfinite, ldexp, nextafter

from requant.formats.elements import FLOATS, FloatElement

F64 = FLOATS["f64"]


def round_to_format(value: float, element: FloatElement) -> float:
    """Return `value` rounded to the nearest number of `element`, ties to even.

    `value` lies within the legal interval of scales of `element`, so there is no overflow. The
    formats with more digits or more exponents than f64 hold every f64 as it is.
    """
    if element.precision >= F64.precision or value == 0.0 or not isfinite(value):
        return value
    # Both scalings are exact, and `round` of a float is exact with ties to even.
    last_place = _last_place(frexp(value)[1], element)
    return copysign(ldexp(round(ldexp(value, -last_place)), last_place), value)


def reads_back(text: str, value: float, element: FloatElement) -> bool:
    """Return whether the decimal number `text`, rounded once to `element`, is `value`, a finite number of `element`."""
    approximate = float(text)
    if element is F64:
        return approximate == value
    if element.precision < F64.precision:
        # The exact number lies between the neighbours of its f64. Where both round alike, so does everything between.
        below, above = (round_to_format(nextafter(approximate, limit), element) for limit in (-inf, inf))
        if below == above:
            return below == value
    elif approximate != value or value == 0.0:
        # Nothing rounds to `value` in a finer format that does not in f64.
        return approximate == value
    else:
        return _rounds_to_finer(text, value, element)
    return round_exactly(Fraction(text), element) == value


def _rounds_to_finer(text: str, value: float, element: FloatElement) -> bool:
    """Return whether `text` rounds to `value`, which is not 0, in a format of more digits and exponents than f64.

    There `value` is even, so the ends of the interval that rounds to it belong to it. Compared in integers: a fraction
    would be reduced first, which takes longer than all the rest.
    """
    mantissa, _, power = text.lower().lstrip("-").partition("e")
    whole, _, places = mantissa.partition(".")
    digits, exponent = int(whole + places), int(power or "0") - len(places)
    fraction, binade = frexp(abs(value))
    # Both numbers, and how far the interval reaches above `value`, as integers of the same unit: 2^-shift, or less by a
    # power of ten. `scale` is that of a quarter of the last place; below a power of two the interval is half as long.
    scale = element.precision + 2 - binade
    shift = max(scale, 0)
    end = 1 << (shift - scale + 1)
    exact = int(ldexp(fraction, F64.precision)) << (shift - scale + element.precision + 2 - F64.precision)
    written = digits << shift
    if exponent < 0:
        exact, end = exact * power_of_ten(-exponent), end * power_of_ten(-exponent)
    else:
        written *= power_of_ten(exponent)
    if written >= exact:
        return written - exact <= end
    return (exact - written) * (2 if fraction == 0.5 else 1) <= end


@cache
def power_of_ten(exponent: int) -> int:
    """Return 10^exponent. There are as many as a float format has exponents: few enough to keep."""
    return int(10**exponent)


def round_exactly(number: Fraction, element: FloatElement, to_integer: Callable[[Fraction], int] = round) -> Fraction:
    """Return `number` rounded to a number of `element`, as if its exponents never ended: to the nearest, ties to even,
    or as `to_integer` rounds it in units of its last place."""
    if number == 0:
        return number
    # The quotient of two integers of these lengths is off by at most one binade.
    exponent = number.numerator.bit_length() - number.denominator.bit_length() + 1
    if abs(number) < Fraction(2) ** (exponent - 1):
        exponent -= 1
    unit = Fraction(2) ** _last_place(exponent, element)
    return to_integer(number / unit) * unit


def _last_place(exponent: int, element: FloatElement) -> int:
    """Return the exponent of the last place of a number in [2^(exponent - 1), 2^exponent)."""
    normal = exponent - element.precision
    return normal if element.smallest == 0.0 else max(normal, frexp(element.smallest)[1] - 1)
