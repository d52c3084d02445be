"""Multipliers and shifts from real factors, or from the scales that a factor is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from requant.errors import LimitError, default_pointer, pointer_prefix
from requant.errors.cancellation import checked
from requant.schemes import scheme_named
from requant.schemes.multipliers import DerivedMultiplier, derive_from_scales, derive_multiplier
from requant_service.runtime.executor import CHARACTERS_PER_FACTOR
from requant_service.runtime.settings import Settings

Scales = tuple[str, str | None, str]
"""The scales of an input, perhaps of weights, and of an output, as text."""

# How many multipliers are derived between two looks at whether to go on.
_AT_ONCE = 16


def check_factors(count: int, of: str, settings: Settings, pointer: str) -> None:
    """Raise LimitError for more factors than multipliers are derived for at once. `of`: what has one each."""
    limit = settings.max_factors
    if count > limit:
        raise LimitError(f"there are {count} {of}; the limit is {limit}", limit=limit, pointer=pointer)


def derivation_characters(count: int) -> int:
    """Return how many characters of types take as long as deriving so many multipliers."""
    return count * CHARACTERS_PER_FACTOR


def scheme_for(name: str, count: int, of: str, settings: Settings) -> str:
    """Return the name of the scheme that multipliers are derived by. `of`: what each of the `count` is made of.

    Raise UnknownNameError, pointing at `/scheme`, and LimitError, pointing at what there is too much of.
    """
    check_factors(count, of, settings, f"/{of}")
    with default_pointer("/scheme"):
        return scheme_named(name).name


def derive_from_factors(factors: Sequence[str], scheme: str) -> list[DerivedMultiplier]:
    """Derive the multiplier of each factor. Errors point at it by its index in `/factors`."""
    return _each(len(factors), "/factors", lambda index: derive_multiplier(factors[index], scheme))


def derive_from_each_scales(scales: Sequence[Scales], scheme: str) -> list[DerivedMultiplier]:
    """Derive the multiplier of each triple of scales. Errors point at one of them: `/scales/0/weight`."""
    return _each(len(scales), "/scales", lambda index: derive_from_scales(*scales[index], scheme))


def _each(count: int, pointer: str, derive: Callable[[int], DerivedMultiplier]) -> list[DerivedMultiplier]:
    found = []
    for index in checked(range(count), _AT_ONCE):
        with pointer_prefix(f"{pointer}/{index}"):
            found.append(derive(index))
    return found
