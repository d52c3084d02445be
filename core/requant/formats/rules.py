"""The choices of arithmetic that profiles and requests say by name, and kernels are told by number.

The sources of kernels say which of their formulas a choice is. What changes here changes machine code.
"""

from __future__ import annotations

from enum import StrEnum


class Rule(StrEnum):
    """A choice with a number."""

    @property
    def code(self) -> int:
        """The number by which kernels are told: its place among the choices."""
        return list(type(self)).index(self)


class Quotient(Rule):
    """How x / s is formed."""

    DIVISION = "division"
    RECIPROCAL = "reciprocal"
    """x * f32(1 / f32(s))."""
    RECIPROCAL_OF_F64 = "reciprocal_of_f64"
    """x * f32(1 / s), s as the f64 of the type."""
    FUSED = "fused"
    """fma(x, f32(1 / f32(s)), z): one rounding, the zero point included."""


class Overflow(Rule):
    """What becomes of an integer outside of the storage bounds."""

    SATURATE = "saturate"
    INDEFINITE = "indefinite"
    """Converted to int32 as x86 does, -2^31 for what does not fit; the zero point added wrapping; then clamped."""
    INDEFINITE_BELOW = "indefinite_below"
    """The same, but what is above int32 becomes 2^31 - 128, the largest f32 in it."""
    UNDEFINED = "undefined"
    """An error unless it fits the storage type; then clamped to narrower bounds."""
    FLOAT_CLAMP = "float_clamp"
    """Zero point and bounds applied in f32; then converted to int32 as x86 does."""
    FLOAT_SATURATE = "float_saturate"
    """Zero point and bounds applied in f32; then saturated."""


class Difference(Rule):
    """How dequantize forms q - z and the product. E is the expressed type, S that of the steps."""

    INTEGER = "integer"
    """E(S(S(q - z) * s)), q - z in int32, which wraps."""
    FLOATS = "floats"
    """E(S(S(S(q) - S(z)) * s))."""
    FLOATS_OF_F32 = "floats_of_f32"
    """The same with q and z rounded to f32 on their way to S."""
    DOUBLE = "double"
    """E(f64(q - z) * f64(s)), q - z exact; rounded to f32 first where E is not f64."""
    DOUBLE_OF_F32 = "double_of_f32"
    """E((f64(f32(q)) - z) * f64(s)), rounded once to f16, and to bf16 by way of f32."""
