"""What the searches for unknown parameters share: what they find, and which elements decide.

The results of all rules grow with the factor of an element, so that the parameters that fit are intervals. Real numbers
bound them, up to what any rule may lose; the real kernels find their ends exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from requant.arrays.elements import numpy_dtype
from requant.description import Array
from requant.errors import RequantError
from requant.errors.cancellation import checked
from requant.identification.outcomes import stored_float
from requant.mlir.types import ElementType

LEAST, LARGEST = 1e-300, 1e300
"""The range in which real scales lie."""
MARGIN = 1.01
"""How much wider the bounds of real numbers are made than they come out."""
# A rule rounds to one of the integers beside the quotient, up to what the precision of f16 or bf16 loses.
_STEP = 1.01
# So many steps through the bounds look for a number for which rules are defined.
_TRIED = 64
_RELATIVE = 2.0**-6
# Of so many elements the extremes are found at once.
_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class ScaleInterval:
    """All scales from `lowest` to `highest`, numbers of the expressed type, give what was observed.

    `channel`: the index of the scale, where there are several.
    """

    zero_point: int
    lowest: float
    highest: float
    channel: int = 0


@dataclass(frozen=True, slots=True)
class MultiplierInterval:
    """All multipliers from `lowest` to `highest` give, with that shift, what was observed."""

    shift: int
    lowest: int
    highest: int
    channel: int = 0


Interval = ScaleInterval | MultiplierInterval


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Nothing fits with that zero point, or that shift: the flat index of one element which nothing fits, or of two
    that nothing fits together.
    """

    zero_point: int | None
    elements: tuple[int, ...]
    channel: int = 0
    shift: int | None = None


def channels_without(found: list[Interval | Contradiction]) -> set[int]:
    """Return the channels for which nothing fits."""
    return {each.channel for each in found} - {each.channel for each in found if isinstance(each, Interval)}


def needed(observed: Array, origin: Array, bounds: tuple[float, float]) -> tuple[Array, Array]:
    """Return between what the real result of each element lies, without the zero point `origin` of the output.

    `bounds` of stored outputs are equal for floats, which saturate nowhere and are not rounded to integers.
    """
    minimum, maximum = bounds
    integers = maximum > minimum
    slack = _STEP * integers + _RELATIVE * np.maximum(np.abs(observed - origin), np.abs(observed))
    low, high = observed - slack - origin, observed + slack - origin
    if not integers:
        return low, high
    return np.where(observed <= minimum, -np.inf, low), np.where(observed >= maximum, np.inf, high)


def faults(signs: Array, above: Array, below: Array, *, grows: bool) -> tuple[Array, Array]:
    """Return which elements say that a parameter is too small, and which that it is too large.

    `signs` of the real inputs; `above`, `below`: where the result is larger or smaller than observed. `grows`: whether
    results go away from zero as the parameter grows. An element whose real input is 0 does not change: if it differs,
    the parameter is both.
    """
    fixed = (signs == 0) & (above | below)
    away = np.where(signs > 0, above, below) | fixed
    near = np.where(signs > 0, below, above) | fixed
    return (near, away) if grows else (away, near)


def bisect(low: Array, high: Array, holds: Callable[[Array], Array]) -> Array:
    """Return for each index the first number from `low` to before `high` from which on something holds, or `high`.

    `holds` says so of one number for each index.
    """
    low, high = low.copy(), high.copy()
    while (searched := low < high).any():
        middle = low + (high - low) // 2
        held = holds(middle)
        high = np.where(searched & held, middle, high)
        low = np.where(searched & ~held, middle + 1, low)
    return low


def first_that(low: int, high: int, holds: Callable[[int], bool], guess: int | None = None) -> int:
    """Return the first of the numbers from `low` to before `high` from which on something holds, or `high`. The nearer
    it is to the `guess`, the sooner it is found.
    """
    if guess is not None and low <= guess < high:
        step = 1
        if holds(guess):
            high = guess
            while low < high and holds(max(high - step, low)):
                high, step = max(high - step, low), 2 * step
            low = max(high - step + 1, low)
        else:
            low = guess + 1
            while low < high and not holds(min(low + step, high) - 1):
                low, step = min(low + step, high), 2 * step
            high = min(low + step - 1, high)
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def domain(
    low: int, high: int, attempt: Callable[[int], object], guess: tuple[int, int] | None = None
) -> tuple[int, int]:
    """Return the first and the last number in bounds for which rules are defined: `attempt` raises no RequantError.

    They are defined between any two for which they are. `guess`: what may be it, if it is in the bounds. Raise what the
    middle does where no number tried is defined.
    """

    def defined(number: int) -> bool:
        try:
            attempt(number)
        except RequantError:
            return False
        return True

    if guess is not None and low <= guess[0] <= guess[1] <= high and all(map(defined, guess)):
        starts = guess[0] == low or not defined(guess[0] - 1)
        if starts and (guess[1] == high or not defined(guess[1] + 1)):
            return guess
    tried = sorted({low + (high - low) * step // _TRIED for step in range(_TRIED + 1)})
    inner = next((each for each in tried if defined(each)), None)
    if inner is None:
        attempt((low + high) // 2)
        return low, high
    before = max((each for each in tried if each < inner), default=low)
    return first_that(before, inner, defined), first_that(inner, high + 1, lambda number: not defined(number)) - 1


def as_f64(elements: Array, element: ElementType | None) -> Array:
    """Return elements as numbers: of floats their values, of others what is stored. Of at most 32 bits all are f64."""
    flat = np.ascontiguousarray(elements).reshape(-1)
    stored = stored_float(element) if element is not None else None
    if stored is not None and flat.dtype.kind == "u":
        flat = flat.view(numpy_dtype(stored))
    numbers: Array = flat.astype(np.float64)
    return numbers


def extremes(keys: Array, values: Array) -> Array:
    """Return the places of the least and the largest value of each key, in order, without those of NaN.

    Of all elements with one stored number, those with the least and the largest other number decide.
    """
    places = np.flatnonzero(~np.isnan(keys) & ~np.isnan(values))
    if places.size > _AT_ONCE:
        starts = checked(range(0, places.size, _AT_ONCE), 1)
        parts = (places[start : start + _AT_ONCE] for start in starts)
        places = np.concatenate([_extremes_among(each, keys, values) for each in parts])
    return _extremes_among(places, keys, values)


def _extremes_among(places: Array, keys: Array, values: Array) -> Array:
    order = places[np.lexsort((values[places], keys[places]))]
    sorted_keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_keys[1:] != sorted_keys[:-1]])) if order.size else order
    ends = np.concatenate([starts[1:] - 1, [order.size - 1]]).astype(int) if order.size else order
    found: Array = np.unique(order[np.concatenate([starts, ends])])
    return found
