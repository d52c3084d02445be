"""Quantize and dequantize with a table in exact fractions, from the page of the profile `quantile`. Imports nothing of
ours.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tests.oracles.profiles import FORMATS, Format, plus, quotient
from tests.oracles.quantization import Stored, nearest_even

VALUE_FORMATS = FORMATS | {
    "f8E4M3FN": Format(4, -9, 8),
    "f8E5M2": Format(3, -16, 15),
    "f4E2M1FN": Format(2, -1, 2),
    "tf32": Format(11, -136, 127),
}


@dataclass(frozen=True)
class Table:
    """A quantile: entries as written, their type, the lowest code, and the narrower bounds of the storage."""

    entries: tuple[float, ...]
    value: str = "f32"
    lowest: int = 0
    bounds: tuple[int, int] | None = None

    @property
    def codes(self) -> range:
        low, high = self.bounds or (self.lowest, self.lowest + len(self.entries) - 1)
        return range(low, high + 1)

    def at(self, code: int, expressed: str) -> float:
        """T(code). Zero keeps its sign in a float, and has none in an integer."""
        written = self.entries[code - self.lowest]
        if self.value[0] not in "bft":
            return FORMATS[expressed].round(Fraction(nearest_even(Fraction(written))))
        value = VALUE_FORMATS[self.value].round(Fraction(written))
        return math.copysign(FORMATS[expressed].round(Fraction(value)), written)


def quantizer(table: Table, expressed: str, scale: float, z: int) -> Callable[[float], Stored]:
    """Return the function from a real number to its code: the exact distances to the values around it are compared."""
    e = FORMATS[expressed]
    s, zero = e.round(Fraction(scale)), e.round(Fraction(z))
    lowest_code: dict[Fraction, int] = {}
    for code in table.codes:
        lowest_code.setdefault(Fraction(table.at(code, expressed)), code)
    values = sorted(lowest_code)
    smallest, largest = values[0], values[-1]

    def quantize(x: float) -> Stored:
        y = plus(quotient(x, s, e), zero, e)
        if math.isnan(y):
            return Stored(table.codes[0], nan=True)
        if math.isinf(y):
            return Stored(lowest_code[largest if y > 0 else smallest], low=y < 0, high=y > 0)
        exact = Fraction(y)
        place = bisect_left(values, exact)
        around = values[max(place - 1, 0) : place + 1]
        nearest = min(around, key=lambda value: (abs(value - exact), value))
        return Stored(lowest_code[nearest], low=exact < smallest, high=exact > largest)

    return quantize


def dequantize(table: Table, expressed: str, scale: float, z: int, code: int) -> float:
    e = FORMATS[expressed]
    value = table.at(code, expressed)
    difference = e.round(Fraction(value) - Fraction(e.round(Fraction(z))))
    if math.isinf(difference):
        return difference
    if z == 0:
        difference = math.copysign(difference, value)  # -0 - 0 is -0
    return math.copysign(e.round(Fraction(difference) * Fraction(e.round(Fraction(scale)))), difference)


def nf4() -> Sequence[float]:
    """The sixteen quantiles of a normal distribution that are in use as NF4."""
    return (
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
        0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    )  # fmt: skip
