"""The body of a JSON request, with long base64 strings left where they were received.

The parser would copy such a string while it holds the GIL, and base64 is decoded from a string more slowly than from
bytes: together 2 ms of 2.5 for 8 MiB. So a long string in a member `data` is replaced by a short name that nobody can
guess, and decoded from the memory of the body.
"""

from __future__ import annotations

import json
import re
import secrets
from functools import cached_property
from typing import Any, cast

from requant_service.http.json_slices import Text

# Strings of at least this length are left out of the document.
_LONG_TEXT = 16 << 10
# Where the next member is looked for, and how many are.
_WINDOW = 64 << 10
_MAX_TEXTS = 16

_KEY = b'"data"'
_OPENING = re.compile(rb'"data"[ \t\n\r]*:[ \t\n\r]*"')
_SECRET = secrets.token_hex(16)


class JsonDocument:
    """A body as it was received, `body`, and what is parsed of it, `text`: the same without its long strings.

    Either both are JSON or neither is; errors in a long string are found when it is decoded.
    """

    def __init__(self, body: Text) -> None:
        self.body = body
        self._long: dict[str, memoryview] = {}
        self.text = body if len(body) < _LONG_TEXT else _without_long_texts(body, self._long)

    def __len__(self) -> int:
        """Return the length of the body."""
        return len(self.body)

    def data(self, text: str) -> str | memoryview:
        """Return the string of a member `data`, given what the parser returned for it."""
        return self._long.get(text, text)

    @cached_property
    def _written(self) -> Any:
        return json.loads(self.text, parse_float=str, parse_int=str, parse_constant=str)

    def number_text(self, value: float | str, field: str) -> str:
        """Return the number in a field, `factors/3`, as it was written, as a JSON number or as a text.

        `value`: what the parser made of it, which has lost the sign of `-0` and all that a double does not hold.
        """
        return value if isinstance(value, str) else cast(str, self._at(field))

    def values(self, field: str) -> list[Any]:
        """Return the `values` of the tensor in a field, `input` or `inputs/3`, as they were written."""
        return cast(list[Any], self._at(f"{field}/values"))

    def _at(self, field: str) -> Any:
        """Return what is in a field, with the texts of numbers.

        The document is parsed again when that is first asked for: binary64 is enough for most.
        """
        found = self._written
        for key in field.split("/"):
            found = found[int(key)] if isinstance(found, list) else found[key]
        return found


def _without_long_texts(body: Text, long: dict[str, memoryview]) -> Text:
    """Return a body with names for its long strings, which are added to `long`."""
    kept: list[Text] = []
    whole, at, begin = memoryview(body), 0, 0
    while len(long) < _MAX_TEXTS:
        key = body.find(_KEY, at, at + _WINDOW)
        if key < 0:
            break
        at = key + len(_KEY)
        opening = _OPENING.match(body, key)
        if opening is None or body[key - 1 : key] == b"\\":
            continue
        first = opening.end()
        end = body.find(b'"', first)
        if end - first < _LONG_TEXT:
            continue
        if body.find(b"\\", first, end) >= 0:
            # The string may go on, and what seems to be a member after it may be a part of it.
            break
        name = f"{_SECRET}-{len(long)}"
        long[name] = whole[first:end]
        kept += [body[begin:first], name.encode("ascii")]
        at = begin = end
    return b"".join([*kept, body[begin:]]) if kept else body
