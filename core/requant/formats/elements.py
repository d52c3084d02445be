"""Element types: the builtin integers and floats of MLIR, with what each of them can hold and how numpy holds it.

An integer of N bits that is not 8, 16 or 32 (or 64) is kept in the next wider numpy integer, one element per entry.
Small floats and bf16 are kept as their bit patterns in unsigned integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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


@dataclass(frozen=True, slots=True)
class FloatElement:
    """A builtin MLIR float.

    `precision` counts the significand's bits with the hidden one. `smallest` (the smallest positive subnormal) and
    `largest` (the largest finite value) are converted to f64, as MLIR does for its scale checks; for f80 and f128 that
    gives 0 and infinity. `dtype` is how the bits are kept, None where Requant has no tensors of the type.
    """

    name: str
    width: int
    precision: int
    smallest: float
    largest: float
    dtype: np.dtype[np.generic] | None

    @property
    def tensor_dtype(self) -> np.dtype[np.generic]:
        """`dtype`, for a type that has tensors."""
        assert self.dtype is not None, self.name
        return self.dtype


@dataclass(frozen=True, slots=True)
class IndexElement:
    """MLIR's `index`: parsed, printed, and taken by no operation."""

    name: str = "index"


Element = IntegerElement | FloatElement | IndexElement


def _float(
    name: str, width: int, precision: int, smallest: float, largest: float, dtype: DTypeLike | None
) -> FloatElement:
    return FloatElement(name, width, precision, smallest, largest, None if dtype is None else np.dtype(dtype))


_BF16_LARGEST = float.fromhex("0x1.fep127")
_F32_LARGEST = float.fromhex("0x1.fffffep127")
_F64_LARGEST = float.fromhex("0x1.fffffffffffffp1023")
_INFINITY = float("inf")

# The floats of MLIR's builtin dialect, as the quant dialect bounds their scales.
FLOATS: dict[str, FloatElement] = {
    element.name: element
    for element in (
        _float("f16", 16, 11, 2.0**-24, 65504.0, "<f2"),
        _float("bf16", 16, 8, 2.0**-133, _BF16_LARGEST, "<u2"),
        _float("tf32", 19, 11, 2.0**-136, float.fromhex("0x1.ffcp127"), None),
        _float("f32", 32, 24, 2.0**-149, _F32_LARGEST, "<f4"),
        _float("f64", 64, 53, 2.0**-1074, _F64_LARGEST, "<f8"),
        _float("f80", 80, 64, 0.0, _INFINITY, None),
        _float("f128", 128, 113, 0.0, _INFINITY, None),
        _float("f8E5M2", 8, 3, 2.0**-16, 57344.0, "|u1"),
        _float("f8E4M3", 8, 4, 2.0**-9, 240.0, "|u1"),
        _float("f8E4M3FN", 8, 4, 2.0**-9, 448.0, "|u1"),
        _float("f8E5M2FNUZ", 8, 3, 2.0**-17, 57344.0, "|u1"),
        _float("f8E4M3FNUZ", 8, 4, 2.0**-10, 240.0, "|u1"),
        _float("f8E4M3B11FNUZ", 8, 4, 2.0**-13, 30.0, "|u1"),
        _float("f8E3M4", 8, 5, 2.0**-6, 15.5, "|u1"),
        _float("f8E8M0FNU", 8, 1, 2.0**-127, 2.0**127, "|u1"),
        _float("f6E2M3FN", 6, 4, 0.125, 7.5, "|u1"),
        _float("f6E3M2FN", 6, 3, 0.0625, 28.0, "|u1"),
        _float("f4E2M1FN", 4, 2, 0.5, 6.0, "|u1"),
    )
}
