"""The fields of a query that are not types: enumerations, numbers, and lists of multipliers."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TypeVar

from core.errors import FieldFault, InvalidRequestError, LimitError
from core.schemes import Multiplier
from service.json_api.schemas.conversions import LARGEST_MULTIPLIER, LARGEST_SHIFT
from service.runtime.settings import MOST_ENTRIES

Query = dict[str, str]
Choice = TypeVar("Choice", bound=StrEnum)

_PAIR = re.compile(r"(-?[0-9]{1,17}):(-?[0-9]{1,5})", re.ASCII)


def _wrong(name: str, code: str, detail: str) -> InvalidRequestError:
    return InvalidRequestError(f"query parameter {name}: {detail}", (FieldFault(f"/{name}", code, detail),))


def choice(query: Query, name: str, choices: type[Choice], default: Choice) -> Choice:
    """Return the member of an enumeration that a field names."""
    given = query.get(name)
    if given is None:
        return default
    if given not in tuple(choices):
        raise _wrong(name, "enum", f"not one of {', '.join(choices)}")
    return choices(given)


def boolean(query: Query, name: str) -> bool | None:
    """Return a field that is true or false, or None where it is not there."""
    given = query.get(name)
    if given not in (None, "true", "false"):
        raise _wrong(name, "bool", "expected true or false")
    return None if given is None else given == "true"


def natural(query: Query, name: str, largest: int, words: str) -> int | None:
    """Return a field that is an integer from 0 to `largest`, which is `words`; or None where it is not there."""
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= largest):
        raise _wrong(name, "int_parsing", f"expected a decimal integer from 0 to {words}")
    return int(text)


def multipliers(query: Query) -> list[Multiplier] | None:
    """Return the field `multipliers`, pairs of multiplier and shift such as 1073741824:-3,1431655765:-2, or None."""
    text = query.get("multipliers")
    if text is None:
        return None
    if text.count(",") >= MOST_ENTRIES:
        raise LimitError(f"there are more than {MOST_ENTRIES} multipliers", limit=MOST_ENTRIES, pointer="/multipliers")
    pairs = [_PAIR.fullmatch(pair) for pair in text.split(",")]
    found = [Multiplier(int(pair[1]), int(pair[2])) for pair in pairs if pair is not None]
    fit = all(abs(each.multiplier) <= LARGEST_MULTIPLIER and abs(each.shift) <= LARGEST_SHIFT for each in found)
    if len(found) != len(pairs) or not fit:
        detail = "expected pairs multiplier:shift with commas between, such as 1073741824:-3,1431655765:-2"
        raise _wrong("multipliers", "multipliers", detail)
    return found
