"""The numbers that `requant.kernels.convert.floats.encoding` takes: a format, and what an authority makes of it."""

from __future__ import annotations

from enum import IntEnum


class Field(IntEnum):
    """Where each number stands in the kernel's `rules`. Codes are magnitude codes, without the sign."""

    SOURCE = 0
    """FloatKind of the source; always F64 in lanes of f64."""
    SCALING = 1
    PRECISION = 2
    """What y is rounded to, as `requant.kernels.scalar.rounding.Precision`."""
    ADDS_ZERO = 3
    """Whether +0 is added to y, so that -0 loses its sign."""
    THROUGH_F16 = 4
    """Whether y is then rounded to f16, as oneDNN does it. It adds a zero point of +0 on its way."""
    NAN_UNDEFINED = 5
    """Whether NaN is an error."""
    BYTES = 6
    """Those of a code."""
    MANTISSA_BITS = 7
    BIAS = 8
    SIGN_BIT = 9
    ZERO_SIGN = 10
    """The sign bit of a zero: 0 where the format has no negative zero."""
    HIGHEST = 11
    """The bits of the largest |y| that is no overflow."""
    OVERFLOW = 12
    """The code of an overflow."""
    INFINITY = 13
    """The code of an infinity."""
    NAN = 14
    """The code of a NaN."""
    SMALLEST_NAN = 15
    """The smallest code that is one; a payload that was cut to nothing must not read as infinity."""
    NAN_PAYLOAD = 16
    """Mask of the highest mantissa bits of y that a NaN keeps."""
    NAN_SIGN = 17
    """Mask of the sign that a NaN keeps."""
    NAN_FLIP = 18
    """What the sign of a NaN is then exclusive-ored with."""
    SLIP_FROM = 19
    """The bits of |y| from this, which is beyond HIGHEST,"""
    SLIP_TO = 20
    """to below this"""
    SLIP = 21
    """give this code, whatever the rest says."""


class Scaling(IntEnum):
    """How y comes from x and the factor of its channel. NONE leaves a NaN as it is."""

    NONE = 0
    MULTIPLICATION = 1
    DIVISION = 2
