"""Element types: the builtin integers and floats of MLIR, with what each of them can hold and how numpy holds it.

An integer of N bits that is not 8, 16 or 32 (or 64) is kept in the next wider numpy integer, one element per entry.
Small floats and bf16 are kept as their bit patterns in unsigned integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf, ldexp
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

BYTE = np.dtype(np.uint8)
"""For views: from a type, numpy would make the dtype anew each time, which takes longer than the view."""


class Signedness(StrEnum):
    """MLIR's three kinds of integer: `iN`, `siN`, `uiN`."""

    SIGNLESS = "signless"
    SIGNED = "signed"
    UNSIGNED = "unsigned"


_PREFIX = {Signedness.SIGNLESS: "i", Signedness.SIGNED: "si", Signedness.UNSIGNED: "ui"}


def integer_dtype(width: int, *, signed: bool) -> np.dtype[np.generic]:
    """Return the narrowest numpy integer that holds `width` bits (1 to 64)."""
    container = next(bits for bits in (8, 16, 32, 64) if width <= bits)
    return np.dtype(f"{'i' if signed else 'u'}{container // 8}")


@dataclass(frozen=True, slots=True)
class IntegerElement:
    """A builtin MLIR integer. Signless integers are read as signed, as StableHLO and the quant dialect do."""

    width: int
    signedness: Signedness = Signedness.SIGNLESS

    @property
    def name(self) -> str:
        return f"{_PREFIX[self.signedness]}{self.width}"

    @property
    def signed(self) -> bool:
        return self.signedness is not Signedness.UNSIGNED

    @property
    def minimum(self) -> int:
        return -((1 << self.width) >> 1) if self.signed else 0

    @property
    def maximum(self) -> int:
        return (1 << max(0, self.width - self.signed)) - 1

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return integer_dtype(self.width, signed=self.signed)

    @property
    def tensor_dtype(self) -> np.dtype[np.generic]:
        """`dtype`: every integer type has tensors."""
        return self.dtype


class Specials(StrEnum):
    """Which codes are not finite numbers, as the last letters of the formats' names say."""

    IEEE = "ieee"
    """The highest exponent holds infinity and NaN."""

    FN = "fn"
    """No infinity; NaN is the code of all ones, with either sign."""

    FNUZ = "fnuz"
    """No infinity and no negative zero, whose code is the only NaN."""

    FINITE = "finite"
    """Neither infinity nor NaN."""

    SCALE = "scale"
    """E8M0: an exponent only. No sign, no zero, no infinity; NaN is the code of all ones."""


@dataclass(frozen=True, slots=True)
class FloatElement:
    """A builtin MLIR float.

        (-1)^sign * 2^(E - bias) * (1 + M / 2^m);   where E = 0: (-1)^sign * 2^(1 - bias) * M / 2^m;
        E8M0: 2^(code - 127)

    E is the exponent field, M the mantissa field, m its width. `precision` counts the significand's bits with the
    hidden one. `smallest` (the smallest positive value: a subnormal, where the format has them) and `largest` (the
    largest finite one) are converted to f64, as MLIR does for its scale checks; for f80 and f128 that gives 0 and
    infinity. `dtype` is how the bits are kept, None where Requant has no tensors of the type.
    """

    name: str
    width: int
    precision: int
    bias: int
    specials: Specials
    smallest: float
    largest: float
    dtype: np.dtype[np.generic] | None

    @property
    def tensor_dtype(self) -> np.dtype[np.generic]:
        """`dtype`, for a type that has tensors."""
        assert self.dtype is not None, self.name
        return self.dtype

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """The unsigned integer that holds a code."""
        return integer_dtype(self.width, signed=False)

    @property
    def mantissa_bits(self) -> int:
        """The bits of the mantissa field, without the hidden one."""
        return self.precision - 1

    @property
    def exponent_bits(self) -> int:
        """The bits of the exponent field."""
        return self.width - self.mantissa_bits - (self.specials is not Specials.SCALE)

    @property
    def sign_bit(self) -> int:
        return 0 if self.specials is Specials.SCALE else 1 << (self.width - 1)

    @property
    def infinity_code(self) -> int | None:
        highest = ((1 << self.exponent_bits) - 1) << self.mantissa_bits
        return highest if self.specials is Specials.IEEE else None

    @property
    def largest_code(self) -> int:
        """The code of the largest finite value."""
        if self.infinity_code is not None:
            return self.infinity_code - 1
        magnitudes = 1 << (self.exponent_bits + self.mantissa_bits)
        return magnitudes - (2 if self.specials in (Specials.FN, Specials.SCALE) else 1)

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (-self.bias if self.specials is Specials.SCALE else 1 - self.bias)

    def value(self, code: int) -> float:
        """Return the value of a code, exactly: of a format that f64 has all numbers of. `code`: 0 to 2^width - 1."""
        magnitude = code & ~self.sign_bit
        sign = -1.0 if code & self.sign_bit else 1.0
        if self.specials is Specials.FNUZ and code == self.sign_bit:
            return -float("nan")
        if magnitude > self.largest_code:
            return sign * float("inf" if magnitude == self.infinity_code else "nan")
        exponent, mantissa = magnitude >> self.mantissa_bits, magnitude & ((1 << self.mantissa_bits) - 1)
        if self.specials is Specials.SCALE:
            return 2.0 ** (exponent - self.bias)
        hidden = (exponent > 0) << self.mantissa_bits
        return sign * ldexp(hidden + mantissa, max(exponent, 1) - self.bias - self.mantissa_bits)


@dataclass(frozen=True, slots=True)
class IndexElement:
    """MLIR's `index`: parsed, printed, and taken by no operation."""

    name: str = "index"


Element = IntegerElement | FloatElement | IndexElement


def _float(
    name: str,
    exponent_bits: int,
    mantissa_bits: int,
    bias: int,
    specials: Specials,
    dtype: DTypeLike | None,
    *,
    integer_bits: int = 0,
) -> FloatElement:
    """Return a format. `integer_bits`: 1 if the leading bit of the significand is stored."""
    width = (specials is not Specials.SCALE) + exponent_bits + integer_bits + mantissa_bits
    # The fields of the largest finite value.
    exponent = (1 << exponent_bits) - (2 if specials in (Specials.IEEE, Specials.SCALE) else 1)
    significand = (2 << mantissa_bits) - (2 if specials is Specials.FN else 1)
    try:
        largest = ldexp(significand, exponent - bias - mantissa_bits)
    except OverflowError:
        largest = inf
    smallest = ldexp(1.0, (specials is not Specials.SCALE) - bias - mantissa_bits)
    stored = None if dtype is None else np.dtype(dtype)
    return FloatElement(name, width, mantissa_bits + 1, bias, specials, smallest, largest, stored)


# The floats of MLIR's builtin dialect. Sources: IEEE 754, OCP OFP8, OCP MX v1.0, ml_dtypes.
FLOATS: dict[str, FloatElement] = {
    element.name: element
    for element in (
        _float("f16", 5, 10, 15, Specials.IEEE, "<f2"),
        _float("bf16", 8, 7, 127, Specials.IEEE, "<u2"),
        _float("tf32", 8, 10, 127, Specials.IEEE, None),
        _float("f32", 8, 23, 127, Specials.IEEE, "<f4"),
        _float("f64", 11, 52, 1023, Specials.IEEE, "<f8"),
        _float("f80", 15, 63, 16383, Specials.IEEE, None, integer_bits=1),
        _float("f128", 15, 112, 16383, Specials.IEEE, None),
        _float("f8E5M2", 5, 2, 15, Specials.IEEE, "|u1"),
        _float("f8E4M3", 4, 3, 7, Specials.IEEE, "|u1"),
        _float("f8E4M3FN", 4, 3, 7, Specials.FN, "|u1"),
        _float("f8E5M2FNUZ", 5, 2, 16, Specials.FNUZ, "|u1"),
        _float("f8E4M3FNUZ", 4, 3, 8, Specials.FNUZ, "|u1"),
        _float("f8E4M3B11FNUZ", 4, 3, 11, Specials.FNUZ, "|u1"),
        _float("f8E3M4", 3, 4, 3, Specials.IEEE, "|u1"),
        _float("f8E8M0FNU", 8, 0, 127, Specials.SCALE, "|u1"),
        _float("f6E2M3FN", 2, 3, 1, Specials.FINITE, "|u1"),
        _float("f6E3M2FN", 3, 2, 3, Specials.FINITE, "|u1"),
        _float("f4E2M1FN", 2, 1, 1, Specials.FINITE, "|u1"),
    )
}
