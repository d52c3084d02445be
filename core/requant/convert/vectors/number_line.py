"""The elements of a type in order, which defines which ones are adjacent.

Ordinals number the elements in ascending order: that of an integer is its value, that of a float the bits of its
magnitude, with its sign. Zero is 0; negative zero and NaN have no ordinal, infinity follows the largest finite
number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.small_floats import SMALL_FLOATS, SmallFloat, Specials
from requant.convert.vectors.reason import Reason
from requant.formats.elements import FloatElement, IntegerElement

Array = NDArray[Any]

_FORMATS = {
    **SMALL_FLOATS,
    "f32": SmallFloat("f32", 8, 23, 127, Specials.IEEE),
    "f64": SmallFloat("f64", 11, 52, 1023, Specials.IEEE),
}


class NumberLine(ABC):
    """The elements of a type. A pattern is an element's bits if it is a float, else the integer itself."""

    lowest: int
    highest: int

    @abstractmethod
    def pattern(self, ordinal: int) -> int:
        """Return the element at an ordinal."""

    @abstractmethod
    def ordinal(self, pattern: int) -> int | None:
        """Return the ordinal of an element, None if it has none."""

    @abstractmethod
    def array(self, patterns: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Return elements as the input of a plan."""

    @abstractmethod
    def special(self) -> Iterable[int]:
        """Return the patterns of the elements that every list of vectors contains."""

    @abstractmethod
    def reasons(self, pattern: int) -> tuple[Reason, ...]:
        """Return the reasons that depend on the element alone."""


@dataclass(frozen=True, slots=True)
class Integers(NumberLine):
    """The integers from `lowest` to `highest`."""

    lowest: int
    highest: int

    def pattern(self, ordinal: int) -> int:
        """See NumberLine.pattern."""
        return ordinal

    def ordinal(self, pattern: int) -> int | None:
        """See NumberLine.ordinal."""
        return pattern

    def array(self, patterns: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """See NumberLine.array."""
        return np.array(patterns, dtype)

    def special(self) -> Iterable[int]:
        """See NumberLine.special."""
        return [each for each in (self.lowest, self.highest, 0, 1, -1) if self.lowest <= each <= self.highest]

    def reasons(self, pattern: int) -> tuple[Reason, ...]:
        """See NumberLine.reasons."""
        return (Reason.ZERO,) if pattern == 0 else ()


class Floats(NumberLine):
    """The numbers of a float format."""

    def __init__(self, name: str) -> None:
        self.format = _FORMATS[name]
        self.highest = self.format.largest_code
        self.lowest = -self.highest if self.format.sign_bit else 0

    def pattern(self, ordinal: int) -> int:
        """See NumberLine.pattern."""
        return ordinal if ordinal >= 0 else self.format.sign_bit | -ordinal

    def ordinal(self, pattern: int) -> int | None:
        """See NumberLine.ordinal."""
        magnitude = pattern & ~self.format.sign_bit
        if magnitude > self.highest and magnitude != self.format.infinity_code:
            return None
        if pattern & self.format.sign_bit:
            return -magnitude or None
        return magnitude

    def array(self, patterns: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """See NumberLine.array."""
        return np.array(patterns, f"<u{dtype.itemsize}").view(dtype)

    def special(self) -> Iterable[int]:
        """See NumberLine.special."""
        format_ = self.format
        first_normal = 1 << format_.mantissa_bits
        magnitudes = [0, self.highest]
        if format_.specials is not Specials.SCALE:
            magnitudes += [1, first_normal, first_normal - 1]
        if format_.infinity_code is not None:
            quiet = format_.infinity_code | 1 << (format_.mantissa_bits - 1)
            magnitudes += [format_.infinity_code, quiet, format_.infinity_code | 1]
        elif format_.specials is Specials.FN:
            magnitudes.append(self.highest + 1)
        elif format_.specials is Specials.SCALE:
            return [*magnitudes, 1, self.highest + 1]
        return dict.fromkeys([*magnitudes, *(format_.sign_bit | each for each in magnitudes)])

    def reasons(self, pattern: int) -> tuple[Reason, ...]:
        """See NumberLine.reasons."""
        format_ = self.format
        value = format_.value(pattern)
        if value != value:
            return (Reason.NAN,)
        magnitude = pattern & ~format_.sign_bit
        if magnitude == format_.infinity_code:
            return (Reason.POSITIVE_INFINITY if value > 0 else Reason.NEGATIVE_INFINITY,)
        found = []
        if value == 0.0:
            found.append(Reason.NEGATIVE_ZERO if pattern else Reason.ZERO)
        elif format_.specials is not Specials.SCALE:
            first_normal = 1 << format_.mantissa_bits
            if magnitude < first_normal:
                found.append(Reason.SUBNORMAL)
            elif magnitude == first_normal:
                found.append(Reason.SMALLEST_NORMAL)
        if magnitude == self.highest:
            found.append(Reason.LARGEST_FINITE)
        return tuple(found)


def number_line(element: IntegerElement | FloatElement) -> NumberLine:
    """Return the elements of a type in their order."""
    if isinstance(element, IntegerElement):
        return Integers(element.minimum, element.maximum)
    return Floats(element.name)
