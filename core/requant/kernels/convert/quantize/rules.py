"""The rules of `requant.kernels.convert.quantize.general`, as the numbers that it takes."""

from __future__ import annotations

from enum import IntEnum


class Field(IntEnum):
    """Where each rule stands in the kernel's `rules`."""

    SOURCE = 0
    """FloatKind of the source, where lanes are f32."""
    QUOTIENT = 1
    PRECISION = 2
    """P, as `requant.kernels.scalar.rounding.Precision`."""
    ADDITION = 3
    ROUNDING = 4
    OVERFLOW = 5
    NAN_UNDEFINED = 6
    """Whether NaN is an error."""
    SEED = 7
    BYTES = 8
    """Those of an element of the target."""


class Addition(IntEnum):
    """When a is added, beyond FUSED."""

    NONE = 0
    BEFORE = 1
    """Before rounding."""
    AFTER = 2
    """After rounding."""
