"""The names of the ways to round, as profiles, schemes and requests say them."""

from __future__ import annotations

from requant.formats.rules import Rule


class Rounding(Rule):
    """How a real number becomes an integer, or in dequantize a float of the expressed type."""

    NEAREST_EVEN = "nearest_even"
    NEAREST_AWAY = "nearest_away"
    NEAREST_UP = "nearest_up"
    NEAREST_DOWN = "nearest_down"
    TOWARD_ZERO = "toward_zero"
    FLOOR = "floor"
    CEILING = "ceil"
    STOCHASTIC = "stochastic"
    SINGLE = "single"
    """Nearest, ties toward plus infinity, once, on the exact product. Only in requantize."""
    DOUBLE = "double"
    """Nearest, ties up, at 31 fraction bits; then nearest, ties away from zero, at the shift. Only in requantize."""
    DOUBLE_UP = "double_up"
    """Nearest, ties up, at 31 fraction bits; then nearest, ties up, at the shift. Only in requantize."""
    ODD = "odd"
    """Toward zero, but an inexact result is the neighbour that is odd: what is then rounded to a format with two bits
    less, or fewer, is as if it had been rounded once. To floats, and in requantize."""
