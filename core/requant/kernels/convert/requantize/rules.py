"""Integer codes of requantization rules, by which the kernels know them."""

from __future__ import annotations

from enum import IntEnum


class FixedPointRule(IntEnum):
    """Which multiplication by an integer. The shift is a right shift s of the whole product, 31 - shift in LiteRT's
    convention."""

    DOUBLE = 0
    """Two roundings: RDBPOT(SRDHM(wrap32(v * 2^max(31-s, 0)), m), max(s-31, 0))."""

    DOUBLE_UP = 1
    """The same with both roundings up."""

    NEAREST_UP = 2
    """One rounding, ties toward plus infinity: floor((v*m + 2^(s-1)) / 2^s)."""

    NEAREST_AWAY = 3
    """One rounding, ties away from zero: RNA(v*m / 2^s)."""

    TOSA_DOUBLE = 4
    """NEAREST_UP; where s > 31, with 2^30 added first if v >= 0, and subtracted if v < 0."""

    NEAREST_EVEN = 5
    """One rounding, ties to even: RNE(v*m / 2^s)."""

    FLOOR = 6
    """One rounding, down: floor(v*m / 2^s)."""

    ODD = 7
    """floor(v*m / 2^s), the last bit set if the remainder is not 0."""


class FloatRule(IntEnum):
    """Which arithmetic with a real factor. The offset is a second parameter, a float."""

    F32_EVEN = 0
    """RNE(f32(f32(v) * factor)) + z_out."""

    F32_OFFSET = 1
    """RNE(f32(f32(f32(v) * factor) + offset)). To clamp to integers before rounding or after it is the same."""

    F64_EVEN_OFFSET = 2
    """RNE(f64(f64(f64(v) * factor) + offset))."""

    F64_AWAY = 3
    """RNA(f64(f64(v) * factor)) + z_out."""


class Requirement(IntEnum):
    """What a scheme demands of an element."""

    VALUE = 0
    """-2^width <= v < 2^width, the width one of the parameters."""
    SCALED = 1
    """Bounds of y."""
    SUM = 2
    """Bounds of y + z_out."""
