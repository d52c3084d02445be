"""JSON documents of requests that are not parsed as one text: those with long strings, and long ones.

A parser would copy a long base64 string while it holds the GIL, and base64 is decoded from a string more slowly than
from bytes: together 2 ms of 2.5 for 8 MiB. So a long string in a member `data` is left where it was received, replaced
by a short unguessable name, and decoded from the memory of the body.

A parser also makes its objects in one call that holds the GIL: a few hundred thousand numbers and brackets stop the
service for a tenth of a second. So in a long document numpy finds the brackets and commas first, the document is cut
there into slices that each take a millisecond, and the parser reads one after the other. An array or object of several
slices is assembled from theirs. Nothing is accepted that the parser would refuse: each slice has to be valid by itself,
and between them there are only the commas and brackets that were cut out.
"""

from __future__ import annotations

import json
import re
import secrets
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

Text = bytes | bytearray

# Brackets and commas in a slice: a millisecond of the parser, even where each makes an object.
SLICE_TOKENS = 4096

# Members that are freed in one call. Each may hold a slice.
_FREED_AT_ONCE = 16

# As deep as the parser reads.
_MAX_DEPTH = 200

_SPACE = b" \t\n\r"
_CLOSING = {ord("["): ord("]"), ord("{"): ord("}")}
_QUOTE, _BACKSLASH, _COMMA, _BRACKET = ord('"'), ord("\\"), ord(","), ord("[")
_MARK = np.zeros(256, bool)
_MARK[list(b'"\\[]{},')] = True
_STEP = np.zeros(256, np.int32)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1

# Bytes that are scanned in one call.
_WINDOW = 64 << 10


class SlicedDocument:
    """A JSON document, parsed slice by slice into `value`. Raise ValueError if it is not JSON."""

    def __init__(self, body: Text) -> None:
        self._body = body
        self._assembled: list[list[Any] | dict[str, Any]] = []
        self._places, self._kinds = _structure(body)
        self._depths = np.cumsum(_STEP[self._kinds])
        if self._depths.size and self._depths.max() > _MAX_DEPTH:
            raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
        self.value = self._read(0, len(body), 0, len(self._places))

    def _read(self, begin: int, end: int, first: int, last: int) -> Any:
        """Parse the value in the bytes from `begin` to `end`, which hold the marks from `first` to `last`."""
        if last - first <= SLICE_TOKENS:
            return _parse(self._body[begin:end], begin)
        opening, closing = int(self._places[first]), int(self._places[last - 1])
        kind = int(self._kinds[first])
        around = self._body[begin:opening] + self._body[closing + 1 : end]
        if around.strip(_SPACE) or self._kinds[last - 1] != _CLOSING.get(kind):
            raise ValueError(f"the brackets from byte {opening} on do not match")
        inside = slice(first, last)
        is_cut = (self._kinds[inside] == _COMMA) & (self._depths[inside] == self._depths[first])
        # The ends of the members: the commas between them, and the closing bracket.
        ends = np.append(first + np.flatnonzero(is_cut), last - 1)
        return self._array(first, ends) if kind == _BRACKET else self._object(first, ends)

    def _array(self, first: int, ends: NDArray[np.int64]) -> list[Any]:
        values: list[Any] = []
        self._assembled.append(values)
        for start, stop, heavy in _groups(first, ends):
            begin, end = int(self._places[start]) + 1, int(self._places[stop])
            if heavy:
                values.append(self._read(begin, end, start + 1, stop))
            else:
                values += _parse(b"[" + self._members(begin, end) + b"]", begin - 1)
        return values

    def _object(self, first: int, ends: NDArray[np.int64]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self._assembled.append(members)
        for start, stop, heavy in _groups(first, ends):
            begin, end = int(self._places[start]) + 1, int(self._places[stop])
            if heavy:
                # Its first mark is the bracket that its value begins with.
                value = int(self._places[start + 1])
                (key,) = _parse(b"{" + self._body[begin:value] + b"[]}", begin - 1)
                members[key] = self._read(value, end, start + 1, stop)
            else:
                members |= _parse(b"{" + self._members(begin, end) + b"}", begin - 1)
        return members

    def _members(self, begin: int, end: int) -> Text:
        members = self._body[begin:end]
        if not members.strip(_SPACE):
            raise ValueError(f"a value is missing at byte {end}")
        return members

    def release(self) -> None:
        """Free the document in slices too. It must not be used afterwards."""
        while self._assembled:
            container = self._assembled.pop()
            values = container if isinstance(container, list) else list(container.values())
            if isinstance(container, dict):
                container.clear()
            while values:
                del values[-_FREED_AT_ONCE:]


def _groups(first: int, ends: NDArray[np.int64]) -> list[tuple[int, int, bool]]:
    """Put members into groups of a slice, each from a mark to a mark. True: it is one member, too large for a slice."""
    groups = []
    at, start = 0, first
    while at < len(ends):
        after = int(np.searchsorted(ends, start + SLICE_TOKENS, "right"))
        heavy = after <= at
        at = at + 1 if heavy else after
        stop = int(ends[at - 1])
        groups.append((start, stop, heavy))
        start = stop
    return groups


def _parse(text: Text, offset: int) -> Any:
    try:
        return from_json(text, cache_strings=False)
    except ValueError as error:
        raise ValueError(f"{error}, counted from byte {max(offset, 0)}") from None


def _structure(body: Text) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the places of the brackets and commas that are not in strings, and which they are."""
    codes = np.frombuffer(body, np.uint8)
    windows = range(0, len(body), _WINDOW)
    places = np.concatenate([np.flatnonzero(_MARK[codes[at : at + _WINDOW]]) + at for at in windows])
    kinds = codes[places]
    is_quote, is_backslash = kinds == _QUOTE, kinds == _BACKSLASH
    escapes = places[is_backslash]
    # Of backslashes in a row, every other one takes what follows it into the string: another one, or a quote.
    index = np.arange(len(escapes))
    begins_row = np.diff(escapes, prepend=-2) != 1
    in_row = index - np.maximum.accumulate(np.where(begins_row, index, 0))
    escaped = escapes[in_row % 2 == 0] + 1
    ends_string = is_quote.copy()
    ends_string[is_quote] = ~np.isin(places[is_quote], escaped, assume_unique=True)
    outside = (np.cumsum(ends_string) % 2 == 0) & ~is_quote & ~is_backslash
    return places[outside], kinds[outside]


# Strings of at least this length are left out of what is parsed.
_LONG_TEXT = 16 << 10
# How far ahead the next member is searched for, and how many are.
_KEY_WINDOW = 64 << 10
_MAX_TEXTS = 16

_KEY = b'"data"'
_OPENING = re.compile(rb'"data"[ \t\n\r]*:[ \t\n\r]*"')
_SECRET = secrets.token_hex(16)
_NAMES = [f"{_SECRET}-{index}" for index in range(_MAX_TEXTS)]
# Made once: `json.loads` makes one in each call, which takes as long as reading a small document.
_WRITTEN = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)


class JsonDocument:
    """A body as it was received, `body`, and what is parsed of it, `text`: the same without its long strings.

    Either both are JSON or neither is; errors in a long string are found when it is decoded.

    `outline` is what is the same in requests that differ only in their data. A long body is parsed as its outline. That
    of a short one is the body without any string of a member `data`, and what these hold decides whether it is JSON.
    """

    def __init__(self, body: Text) -> None:
        self.body = body
        self._strings: dict[str, memoryview] = {}
        is_long = len(body) >= _LONG_TEXT
        self.outline = _without_strings(body, _LONG_TEXT if is_long else 0, self._strings)
        self.text = self.outline if is_long else body

    def __len__(self) -> int:
        """Return the length of the body."""
        return len(self.body)

    def data(self, text: str) -> str | memoryview:
        """Return the string of a member `data`, given what the parser returned for it, here or in the outline."""
        return self._strings.get(text, text)

    @property
    def left_out(self) -> int:
        """How many strings the outline leaves out."""
        return len(self._strings)

    @cached_property
    def _written(self) -> Any:
        return _WRITTEN.decode(self.text.decode())

    def number_text(self, value: float | str, field: str) -> str:
        """Return the number in a field, `factors/3`, as it was written, as a JSON number or as a text.

        `value`: what the parser made of it, which has lost the sign of `-0` and all that a double does not hold.
        """
        return value if isinstance(value, str) else cast(str, self._at(field))

    def values(self, field: str) -> list[Any]:
        """Return the `values` of the tensor in a field, `input` or `inputs/3`, as they were written."""
        return cast(list[Any], self._at(f"{field}/values"))

    def list(self, field: str) -> list[Any]:
        """Return a list that is in a field, as it was written."""
        return cast(list[Any], self._at(field))

    def part(self, place: str) -> JsonDocument:
        """Return what is in a place, as a document of its own."""
        return _Part(self, place)

    def _at(self, field: str) -> Any:
        """Return what is in a field, with the texts of numbers.

        The document is parsed again when that is first asked for: binary64 is enough for most.
        """
        value = self._written
        for key in field.split("/"):
            value = value[int(key)] if isinstance(value, list) else value[key]
        return value


class _Part(JsonDocument):
    """What is in a place of a document."""

    def __init__(self, whole: JsonDocument, place: str) -> None:
        self.body, self.text, self.outline = whole.body, whole.text, whole.outline
        self._strings = whole._strings
        self._whole, self._place = whole, place

    def _at(self, field: str) -> Any:
        return self._whole._at(f"{self._place}/{field}")


def _without_strings(body: Text, shortest: int, strings: dict[str, memoryview]) -> Text:
    """Return a body with names for its strings of at least that length, which are added to `strings`."""
    pieces: list[Text] = []
    whole, at, begin = memoryview(body), 0, 0
    while len(strings) < _MAX_TEXTS:
        key = body.find(_KEY, at, at + _KEY_WINDOW)
        if key < 0:
            break
        at = key + len(_KEY)
        opening = _OPENING.match(body, key)
        if opening is None or body[key - 1 : key] == b"\\":
            continue
        first = opening.end()
        end = body.find(b'"', first)
        if end - first < shortest:
            continue
        if body.find(b"\\", first, end) >= 0:
            # The quote may be escaped, and what looks like a member after it may be a part of the string.
            break
        name = _NAMES[len(strings)]
        strings[name] = whole[first:end]
        pieces += [body[begin:first], name.encode("ascii")]
        at = begin = end
    return b"".join([*pieces, body[begin:]]) if pieces else body
