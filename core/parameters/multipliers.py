"""From a real factor in text to the integer multiplier and shift that stand for it, and how well they do."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from fractions import Fraction

from core.parameters.factors import parse_factor
from core.parameters.schemes import Scheme, scheme_named

# Room for every value of every scheme: the longest have 309 digits before the point, or 62 after it.
_EXACT = Context(prec=512, traps=[Inexact])


@dataclass(frozen=True, slots=True)
class DerivedMultiplier:
    """A multiplier and shift, the real value that they stand for, and how far that is from the factor.

    `represented` is decimal text with all of the value's digits. `relative_error` is represented / factor - 1.
    """

    multiplier: int
    shift: int
    represented: str
    relative_error: float


def derive_multiplier(text: str, scheme: str) -> DerivedMultiplier:
    """Derive multiplier and shift for the factor in `text` (decimal or C99 hexadecimal, read as f64) by the scheme."""
    return _derived(parse_factor(text), scheme_named(scheme))


def _derived(factor: float, scheme: Scheme) -> DerivedMultiplier:
    derived = scheme.derive(factor)
    value = scheme.represented(derived)
    error = value / Fraction(factor) - 1 if factor else Fraction(0)
    return DerivedMultiplier(derived.multiplier, derived.shift, _decimal_text(value), float(error))


def _decimal_text(value: Fraction) -> str:
    """Return all digits of `value`, whose denominator is a power of two. It may be 2^1024, which no double holds."""
    return str(_EXACT.divide(Decimal(value.numerator), Decimal(value.denominator)))
