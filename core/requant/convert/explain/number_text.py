"""Numbers as texts: floats with the fewest digits that read back, and exact results, which may never end."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_DOWN, Context, Decimal, Inexact
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from requant.convert.small_floats import SmallFloat
from requant.formats.elements import FloatElement

# Exact results of up to so many digits are written in full.
_MAX_DIGITS = 30
_DIGITS_OF_LONGER = 20
_SMALLEST_WRITTEN_OUT, _LARGEST_WRITTEN_OUT = 1e-4, 1e16
# Numbers of bf16 and small floats are written as those of f32, which has all of them.
_SCALAR: dict[str, Callable[[float], np.floating[Any]]] = {"f16": np.float16, "f64": np.float64}
_BITS = {"f16": ("<f2", "<u2"), "bf16": (ml_dtypes.bfloat16, "<u2"), "f32": ("<f4", "<u4"), "f64": ("<f8", "<u8")}


def float_text(value: float, element: FloatElement | SmallFloat) -> str:
    """Return a short decimal number that reads back as `value`, a number of `element`: as f32 for bf16 and narrower."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return _digits(_SCALAR.get(element.name, np.float32)(value))


def _digits(value: np.floating[Any]) -> str:
    """Return the fewest digits that read back as a finite number of numpy, or all digits of a whole number."""
    if value == np.trunc(value) and 0 < abs(float(value)) < _LARGEST_WRITTEN_OUT:
        return f"{int(value)}.0"
    if value == 0 or _SMALLEST_WRITTEN_OUT <= abs(float(value)) < _LARGEST_WRITTEN_OUT:
        return np.format_float_positional(value, unique=True, trim="0")
    return np.format_float_scientific(value, unique=True, trim="-")


def float_bits(value: float, element: FloatElement) -> str:
    """Return the bits of `value`, a number of `element`, in hexadecimal."""
    dtype, unsigned = _BITS[element.name]
    with np.errstate(invalid="ignore"):
        bits = int(np.array(value, np.float64).astype(dtype).view(unsigned))
    return f"0x{bits:0{element.width // 4}X}"


def exact_text(number: Fraction) -> str:
    """Return a number in decimal: all digits where there are at most 30, else the first 20 and an ellipsis."""
    context = Context(prec=_MAX_DIGITS, rounding=ROUND_DOWN)
    found = context.divide(Decimal(number.numerator), Decimal(number.denominator))
    if not context.flags[Inexact]:
        return _lower(found.normalize(context))
    mantissa, e, exponent = _lower(Context(prec=_DIGITS_OF_LONGER, rounding=ROUND_DOWN).plus(found)).partition("e")
    return f"{mantissa}…{e}{exponent}"


def _lower(number: Decimal) -> str:
    text = str(number).lower()
    mantissa, e, exponent = text.partition("e")
    # Decimal writes 1000 as 1e+3; short powers of ten are written out.
    if e and 0 <= int(exponent) < _DIGITS_OF_LONGER:
        return str(int(number))
    return f"{mantissa}{e}{exponent}"
