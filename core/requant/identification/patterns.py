"""What the elements that differ have in common: a fact about the data, which often names the cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from requant.description import Array


class Pattern(StrEnum):
    """What all elements that differ have in common, and only they or only some of the others have."""

    OFF_BY_ONE = "off_by_one"
    """Each is one step from what is computed."""
    CONSTANT_OFFSET = "constant_offset"
    """Each differs by the same number."""
    TIES = "ties"
    """The exact result lies halfway between two integers."""
    NEGATIVE = "negative"
    """The real input is negative."""
    POSITIVE = "positive"
    """The real input is positive."""
    SATURATED = "saturated"
    """What is computed is a bound."""
    SUBNORMAL = "subnormal"
    """The input is a subnormal float."""
    NAN = "nan"
    """The input is NaN."""
    ONE_CHANNEL = "one_channel"
    """All are of one index along one axis."""
    LAST_ELEMENT = "last_element"
    """Only the last one differs: as where an odd number of nibbles is packed."""
    SWAPPED_PAIRS = "swapped_pairs"
    """Each two neighbours are exchanged: the nibbles of a byte are in the other order."""
    OTHER_SIGN = "other_sign"
    """The same bits, read as numbers with or without a sign."""


WORDS: Mapping[Pattern, str] = {
    Pattern.OFF_BY_ONE: "each is one step from what is computed",
    Pattern.CONSTANT_OFFSET: "each differs from what is computed by {}",
    Pattern.TIES: "the exact result lies halfway between two integers",
    Pattern.NEGATIVE: "the real input is negative",
    Pattern.POSITIVE: "the real input is positive",
    Pattern.SATURATED: "what is computed is a bound",
    Pattern.SUBNORMAL: "the input is a subnormal float",
    Pattern.NAN: "the input is NaN",
    Pattern.ONE_CHANNEL: "all are of {}",
    Pattern.LAST_ELEMENT: "only the last one differs",
    Pattern.SWAPPED_PAIRS: "each two neighbours are exchanged, as nibbles in the other order",
    Pattern.OTHER_SIGN: "the same bits, read with or without a sign",
}
"""What people read in the place of names, with the number that belongs to one."""


def in_words(pattern: str) -> str:
    """Return a pattern of a reply, `name` or `name: number`, in words."""
    name, _, number = pattern.partition(": ")
    return WORDS[Pattern(name)].format(number)


@dataclass(frozen=True, slots=True)
class Difference:
    """What was computed and observed, and the inputs of the same elements.

    `inputs`: reals, without their zero point; `exact`: the result before rounding, about; `bounds` of the storage.
    """

    shape: tuple[int, ...]
    computed: Array
    observed: Array
    inputs: Array | None = None
    exact: Array | None = None
    bounds: tuple[int, int] | None = None
    least_normal: float = 0.0


# An exact result so near to a half is a tie, as far as f64 can tell.
_NEAR_TIE = 2.0**-20


def patterns(difference: Difference) -> Iterator[tuple[Pattern, str]]:
    """Yield what the elements that differ have in common, with the number that belongs to it, or nothing."""
    computed, observed = difference.computed.astype(np.float64), difference.observed.astype(np.float64)
    differs = ~((computed == observed) | (np.isnan(computed) & np.isnan(observed)))
    places = np.flatnonzero(differs)
    if not places.size:
        return
    steps = observed[places] - computed[places]
    if np.all(steps == steps[0]) and np.isfinite(steps[0]):
        yield Pattern.CONSTANT_OFFSET, f"{steps[0]:g}"
    elif np.all(np.abs(steps) == 1):
        yield Pattern.OFF_BY_ONE, ""
    yield from _of_inputs(difference, places)
    if difference.bounds is not None and np.all(np.isin(computed[places], difference.bounds)):
        yield Pattern.SATURATED, ""
    yield from _of_places(difference.shape, places)
    yield from _of_layout(computed, observed, places, difference.bounds)


def _of_inputs(difference: Difference, places: Array) -> Iterator[tuple[Pattern, str]]:
    if difference.exact is not None:
        with np.errstate(all="ignore"):
            beyond = np.abs(difference.exact[places] - np.rint(difference.exact[places]))
        if np.all(np.abs(beyond - 0.5) < _NEAR_TIE):
            yield Pattern.TIES, ""
    if difference.inputs is None:
        return
    inputs = difference.inputs[places]
    if np.all(np.isnan(inputs)):
        yield Pattern.NAN, ""
    elif np.all((inputs != 0) & (np.abs(inputs) < difference.least_normal)):
        yield Pattern.SUBNORMAL, ""
    # Of inputs that are all of one sign, that says nothing.
    others = np.sign(difference.inputs)
    for pattern, sign in ((Pattern.NEGATIVE, -1), (Pattern.POSITIVE, 1)):
        if np.all(np.sign(inputs) == sign) and np.any(others == -sign):
            yield pattern, ""


def _of_places(shape: tuple[int, ...], places: Array) -> Iterator[tuple[Pattern, str]]:
    size = int(np.prod(shape))
    if size > 1 and places.tolist() == [size - 1]:
        yield Pattern.LAST_ELEMENT, ""
    if places.size > 1:
        for axis, indices in enumerate(np.unravel_index(places, shape)):
            if shape[axis] > 1 and np.all(indices == indices[0]):
                yield Pattern.ONE_CHANNEL, f"index {int(indices[0])} of axis {axis}"


def _of_layout(
    computed: Array, observed: Array, places: Array, bounds: tuple[int, int] | None
) -> Iterator[tuple[Pattern, str]]:
    even = computed.size - computed.size % 2
    swapped = computed[:even].reshape(-1, 2)[:, ::-1].reshape(-1)
    if places.size > 1 and even and np.array_equal(swapped, observed[:even]):
        yield Pattern.SWAPPED_PAIRS, ""
    if bounds is not None:
        size = bounds[1] - bounds[0] + 1
        steps = np.abs(observed[places] - computed[places])
        if np.all(steps == size) and size & (size - 1) == 0:
            yield Pattern.OTHER_SIGN, ""
