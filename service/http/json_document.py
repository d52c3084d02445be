"""The body of a JSON request, with long base64 texts left where they were received.

A parser looks at each character of a text, and makes a string of it, in one call that lets no other thread of Python
run: 6 ms for 8 MiB. And the string would only be read once more, to be decoded. So a long text in a member `data` is
replaced by a short name that nobody can guess, and the text itself is decoded from the memory of the body.
"""

from __future__ import annotations

import json
import re
import secrets
from functools import cached_property
from typing import Any, cast

from service.http.json_slices import Text

# Texts from here on are left out of the document.
_LONG_TEXT = 16 << 10
# So far is looked for the next member, and so many are looked for.
_WINDOW = 64 << 10
_MOST_TEXTS = 16

_KEY = b'"data"'
_OPENING = re.compile(rb'"data"[ \t\n\r]*:[ \t\n\r]*"')
_SECRET = secrets.token_hex(16)


class JsonDocument:
    """A body as it came, `body`, and the same without its long texts, `text`: what is parsed.

    Both are JSON, or none of them is; what is wrong with a text is seen when it is decoded.
    """

    def __init__(self, body: Text) -> None:
        self.body = body
        self._long: dict[str, memoryview] = {}
        self.text = _without_long_texts(body, self._long)

    def __len__(self) -> int:
        """Return the length of the body."""
        return len(self.body)

    def data(self, text: str) -> str | memoryview:
        """Return what a member `data` holds, by what the parser says that it holds."""
        return self._long.get(text, text)

    @cached_property
    def _written(self) -> Any:
        return json.loads(self.text, parse_float=str, parse_int=str)

    def values(self, field: str) -> list[str]:
        """Return the `values` of the tensor in a field, `input` or `inputs/3`, as they were written.

        The document is read again when the first are asked for, and only then: binary64 is enough for most.
        """
        found = self._written
        for key in (*field.split("/"), "values"):
            found = found[int(key)] if isinstance(found, list) else found[key]
        return cast(list[str], found)


def _without_long_texts(body: Text, long: dict[str, memoryview]) -> Text:
    """Return a body with names for its long texts, which are added to `long`."""
    kept: list[Text] = []
    whole, at, begin = memoryview(body), 0, 0
    while len(long) < _MOST_TEXTS:
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
            # Perhaps the text goes on, and what seems to be a member after it is a part of it.
            break
        name = f"{_SECRET}-{len(long)}"
        long[name] = whole[first:end]
        kept += [body[begin:first], name.encode("ascii")]
        at = begin = end
    return b"".join([*kept, body[begin:]]) if kept else body
