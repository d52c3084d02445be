"""The slow truth of what a stored code and its scale stand for, in exact fractions, importing nothing of ours.

A loader multiplies in one dtype and casts to another: each step is the exact result, rounded. Numbers are Python floats
that hold values of the dtypes exactly, infinities and NaN among them.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from tests.oracles.profiles import FORMATS, Format
from tests.oracles.small_floats import FORMATS as SMALL_FLOATS
from tests.oracles.small_floats import value_of

BF16, F16, F32 = FORMATS["bf16"], FORMATS["f16"], FORMATS["f32"]
BY_NAME = {"BF16": BF16, "F16": F16, "F32": F32}


@cache
def small_float(name: str, code: int) -> float:
    """The value of a code."""
    sign = SMALL_FLOATS[name].sign
    magnitude = value_of(name, code & (sign - 1))
    return -float(magnitude) if code & sign else float(magnitude)


def e8m0(code: int, *, nan: bool) -> float:
    """2^(code - 127). `nan`: whether 255 is NaN, as OCP MX v1.0 has it, and not 2^128."""
    return math.nan if nan and code == 255 else 2.0 ** (code - 127)


def _rounded(exact: Fraction, to: Format) -> float:
    return math.copysign(to.round(exact), exact)


# Of numbers that are not 0: a cache takes 0 and -0 for the same.
@cache
def _cast(number: float, to: Format) -> float:
    return _rounded(Fraction(number), to)


@cache
def _product(a: float, b: float, to: Format) -> float:
    return _rounded(Fraction(a) * Fraction(b), to)


def cast(number: float, to: Format) -> float:
    """The nearest number of another dtype."""
    return number if number == 0 or not math.isfinite(number) else _cast(number, to)


def product(a: float, b: float, to: Format) -> float:
    """a * b in a dtype."""
    if a == 0 or b == 0 or not (math.isfinite(a) and math.isfinite(b)):
        return a * b
    return _product(a, b, to)
