"""Tables of values as conversions compute with them: entries as values of the expressed type, and what is nearest."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf, nextafter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import UnsupportedError
from core.formats.elements import FloatElement, IntegerElement
from core.formats.float_format import round_to_format
from core.mlir.types import QuantileType
from core.plan.lanes import rounded

Array = NDArray[Any]


def _as_value(entry: float, value: IntegerElement | FloatElement) -> float | None:
    """Return an entry rounded (RNE) to the type of the values, None if that does not hold it."""
    if isinstance(value, IntegerElement):
        whole = round(entry)
        return float(whole) if value.minimum <= whole <= value.maximum else None
    scale_only = value.name == "f8E8M0FNU"
    if abs(entry) > value.largest or (scale_only and entry < value.smallest):
        return None
    return round_to_format(entry, value)


def table_values(quantile: QuantileType, expressed: FloatElement) -> Array:
    """Return the value of each code in the lanes of the expressed type, from the lowest code on.

    Entries are rounded (RNE) to the quantile's value type, then to the expressed type. Raise UnsupportedError, naming
    the entry, if one is beyond either.
    """
    values = np.empty(len(quantile.table), np.float64)
    for index, entry in enumerate(quantile.table):
        value = _as_value(entry, quantile.value)
        if value is None or abs(value) > expressed.largest:
            beyond = quantile.value.name if value is None else expressed.name
            raise UnsupportedError(f"entry {index} of the quantile, {entry!r}, is not within the range of {beyond}")
        values[index] = value
    return rounded(values, expressed)


@dataclass(frozen=True, slots=True)
class NearestCodes:
    """The sorted distinct values of some codes, as intervals: up to and with `thresholds[i]` a number has `codes[i]`.

    There is one code more than there are thresholds. `smallest` and `largest` are the outermost values.
    """

    thresholds: Array
    codes: Array
    smallest: float
    largest: float


def _floor_of_middle(low: float, high: float, lanes: str) -> float:
    """Return the largest number of the lanes that is not above the exact middle of two others."""
    middle = (Fraction(low) + Fraction(high)) / 2
    nearest = float(middle)
    if Fraction(nearest) > middle:
        nearest = nextafter(nearest, -inf)
    if lanes == "<f4":
        single = np.float32(nearest)
        if float(single) > nearest:
            single = np.nextafter(single, np.float32(-np.inf))
        return float(single)
    return nearest


def nearest_codes(values: Array, lowest: int, minimum: int, maximum: int) -> NearestCodes:
    """Return which of the codes `minimum` to `maximum` is nearest to a number; `values` begins with code `lowest`.

    Of two values that are equally near it is the smaller, of equal values the lowest code.
    """
    taken = values[minimum - lowest : maximum - lowest + 1]
    # The index of the first of equal values, because the sort that finds it is stable; -0 and 0 are equal.
    distinct, first = np.unique(taken, return_index=True)
    pairs = zip(distinct[:-1].tolist(), distinct[1:].tolist(), strict=True)
    thresholds = [_floor_of_middle(low, high, values.dtype.str) for low, high in pairs]
    return NearestCodes(np.array(thresholds, values.dtype), first + minimum, float(distinct[0]), float(distinct[-1]))


def zero_points_in(expressed: FloatElement, zero_points: tuple[int, ...]) -> Array:
    """Return zero points of at most 32 bits in the lanes of the expressed type, rounded once.

    Raise UnsupportedError for one beyond its range.
    """
    for channel, zero_point in enumerate(zero_points):
        if abs(zero_point) > expressed.largest:
            raise UnsupportedError(f"zero point {zero_point} of channel {channel} is beyond {expressed.name}")
    return rounded(np.array(zero_points, np.float64), expressed)
