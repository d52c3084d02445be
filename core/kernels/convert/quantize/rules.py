"""The rules of `core.kernels.convert.quantize.general`, as the numbers that it takes."""

from __future__ import annotations

from enum import IntEnum


class Field(IntEnum):
    """Where each rule stands in the kernel's `rules`."""

    SOURCE = 0
    """FloatKind of the source, where lanes are f32."""
    QUOTIENT = 1
    PRECISION = 2
    """P, as `core.kernels.scalar.rounding.Precision`."""
    ADDITION = 3
    ROUNDING = 4
    OVERFLOW = 5
    NAN_UNDEFINED = 6
    """Whether NaN is an error."""
    SEED = 7
    BYTES = 8
    """Those of an element of the target."""


class Quotient(IntEnum):
    """x / s, x * r, or fma(x, r, a), with r the reciprocal that the caller computed."""

    DIVISION = 0
    RECIPROCAL = 1
    FUSED = 2


class Addition(IntEnum):
    """When a is added, beyond FUSED."""

    NONE = 0
    BEFORE = 1
    """Before rounding."""
    AFTER = 2
    """After rounding."""


class Overflow(IntEnum):
    """What becomes of an integer outside of the bounds."""

    SATURATE = 0
    """It becomes the first or last integer that is stored."""
    INDEFINITE = 1
    """What does not fit int32 becomes -2^31 first, the addition of z wraps, and then it saturates."""
    UNDEFINED = 2
    """It saturates, but is an error where it does not fit the storage type."""
    INDEFINITE_LAST = 3
    """It saturates, and then what does not fit int32 becomes -2^31."""
    INDEFINITE_BELOW = 4
    """At most 2^31 - 128, the largest f32 in int32, and at least -2^31 first; the addition of z wraps, and then it
    saturates."""
