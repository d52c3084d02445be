"""Untrusted JSON that is small by nature: config.json, manifests, records.

`json` parses in one call that other threads of the process wait for, and makes objects of 56 bytes and more of 2 bytes
of text. So the size is looked at first, and the number of values.
"""

from __future__ import annotations

import json
from typing import Any

from requant.errors import excerpt

MAX_VALUES = 250_000
"""Parsed in some 25 ms. The largest that are written name the modules of models with tens of thousands of experts."""
MAX_NESTING = 100
_MAX_DIGITS = 1000


def parse_small_json(data: bytes, max_bytes: int) -> Any:
    """Return what a JSON text holds. A name of an object occurs once in it, and all texts are UTF-8.

    NaN and Infinity are taken, as Python writes them. Raises ValueError, with the reason, for anything else, for more
    than `max_bytes`, more than MAX_VALUES commas and brackets, values nested deeper than MAX_NESTING, and integers of
    more than 1,000 digits.
    """
    if len(data) > max_bytes:
        raise ValueError(f"it has {len(data)} bytes; at most {max_bytes} are read")
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise ValueError(f"it has more than {MAX_VALUES} values")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_members, parse_int=_integer)
    except RecursionError:
        raise ValueError(f"values are nested more than {MAX_NESTING} deep") from None
    _check(value)
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has a duplicate member")
    return members


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"an integer has {len(digits)} digits; at most {_MAX_DIGITS} are read")
    return int(digits)


def _check(value: Any) -> None:
    """Raise ValueError for texts with half a surrogate pair, and for values that are nested too deep."""
    layer = [value]
    for _ in range(MAX_NESTING + 1):
        below: list[Any] = []
        for each in layer:
            if isinstance(each, dict):
                below += each
                below += each.values()
            elif isinstance(each, list):
                below += each
            elif isinstance(each, str) and not each.isascii():
                try:
                    each.encode("utf-8")
                except UnicodeEncodeError:
                    raise ValueError(f"'{excerpt(each)}' has an unpaired surrogate") from None
        if not below:
            return
        layer = below
    raise ValueError(f"values are nested more than {MAX_NESTING} deep")
