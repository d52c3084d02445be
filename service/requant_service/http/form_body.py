"""A body of `multipart/form-data` (RFC 7578), part by part as it arrives: nothing is spooled or kept twice.

python-multipart finds the boundaries. A chunk becomes a list of events, from which the parts are read like bodies of
their own. Of a part's head only the name counts: file names and media types are ignored.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from requant.errors import (
    InvalidRequestError,
    LimitError,
    MalformedRequestError,
    UnreadableEncodingError,
    excerpt,
)
from requant_service.http.problems import pointer
from requant_service.http.request_body import BodyReader, ChunkReader, require_media_type

MEDIA_TYPE = "multipart/form-data"

MAX_PARTS = 64
_MAX_HEADERS = 8
_LONGEST_HEADER = 1024

_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]", re.ASCII)
# Encodings that leave bytes as they are.
_IDENTITIES = frozenset({"", "7bit", "8bit", "binary"})
_BLANKS = (b" ", b"\t")

# It would log every refusal, so a client could fill the log.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

_PART, _DATA, _END_OF_PART, _END = range(4)
_Event = tuple[int, bytes]


def form_boundary(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the boundary that the Content-Type states. Raise UnreadableEncodingError or MalformedRequestError."""
    require_media_type(headers, {MEDIA_TYPE})
    media_type, options = parse_options_header(headers.get(b"content-type"))
    if not media_type:
        raise UnreadableEncodingError(f"there is no Content-Type; expected {MEDIA_TYPE}")
    boundary = options.get(b"boundary", b"")
    if not _BOUNDARY.fullmatch(boundary.decode("latin-1")):
        raise MalformedRequestError("the Content-Type needs a boundary of 1 to 70 characters (RFC 2046 section 5.1.1)")
    return boundary


class FormReader:
    """The parts of one form in their order."""

    def __init__(self, body: BodyReader, boundary: bytes) -> None:
        self.body = body
        self._events: deque[_Event] = deque()
        self._field = b""
        self._value = b""
        self._head: dict[bytes, bytes] = {}
        self._delimiter = b"\r\n--" + boundary
        self._delimiters = 0
        self._tail = b""
        self._names: set[str] = set()
        self._part: PartReader | None = None
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._header_field,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_finished,
                "on_part_data": self._data,
                "on_part_end": lambda: self._events.append((_END_OF_PART, b"")),
                "on_end": lambda: self._events.append((_END, b"")),
            },
            max_header_count=_MAX_HEADERS,
            max_header_size=_LONGEST_HEADER,
        )

    async def next_part(self) -> PartReader | None:
        """Return the next part, None after the last one. The unread rest of the one before is dropped.

        Raise MalformedRequestError for a body that is no form, InvalidRequestError for a part without a name or with
        one that was there before, UnreadableEncodingError for one that is encoded, LimitError for too many.
        """
        if self._part is not None:
            await self._part.skip_rest()
        kind, head = await self.event()
        if kind == _END:
            await self.body.skip_rest()
            return None
        assert kind == _PART
        name = self._name(head)
        if name in self._names:
            place = pointer(excerpt(name))
            detail = "given more than once"
            raise InvalidRequestError.of_field(place, "repeated", detail, message=_of(name, detail))
        self._names.add(name)
        self._part = PartReader(name, self)
        return self._part

    async def event(self) -> _Event:
        """Return what comes next in the body."""
        while not self._events:
            data = await self.body.next_bytes()
            if not data:
                raise MalformedRequestError("the form ends without its last boundary")
            self.body.consume(len(data))
            self._check_delimiters(data)
            try:
                self._parser.write(data)
            except FormParserError as error:
                detail = f"the body is not {MEDIA_TYPE} as its Content-Type says: {excerpt(str(error))}"
                raise MalformedRequestError(detail) from None
        return self._events.popleft()

    @property
    def bytes_left(self) -> int | None:
        """How many bytes of parts may still be read, None if the length of the body is not known."""
        if self.body.declared is None:
            return None
        return self.body.declared - self.body.received + sum(len(data) for _, data in self._events)

    def _check_delimiters(self, data: bytes) -> None:
        """Refuse what is slow to parse: the parser steps through blanks after a boundary, and tries each boundary."""
        delimiter, size = self._delimiter, len(self._delimiter)
        # Of two chunks, what may hold a boundary that neither of them holds.
        edge = self._tail + data[:size]
        self._delimiters += data.count(delimiter) + (self._tail[1 - size :] + data[: size - 1]).count(delimiter)
        if self._delimiters > MAX_PARTS:
            detail = f"the form has more than {MAX_PARTS} parts, or its boundary occurs in the data of one"
            raise LimitError(detail, limit=MAX_PARTS)
        if any(delimiter + blank in part for part in (data, edge) for blank in _BLANKS):
            raise MalformedRequestError("a boundary of the form is followed by blanks")
        self._tail = (self._tail + data if len(data) < size else data)[-size:]

    def _begin(self) -> None:
        self._head = {}
        self._field = self._value = b""

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        # Of a repeated header the first one counts, whichever another parser would take.
        self._head.setdefault(self._field.lower(), self._value)
        self._field = self._value = b""

    def _headers_finished(self) -> None:
        disposition = self._head.get(b"content-disposition", b"")
        encoding = self._head.get(b"content-transfer-encoding", b"").strip()
        self._events.append((_PART, disposition + b"\r" + encoding))

    def _data(self, data: bytes, start: int, end: int) -> None:
        if end > start:
            self._events.append((_DATA, data[start:end]))

    def _name(self, head: bytes) -> str:
        disposition, _, encoding = head.decode("latin-1").partition("\r")
        kind, options = parse_options_header(disposition)
        name = options.get(b"name", b"")
        if kind != b"form-data" or not name:
            detail = 'a part needs a name: Content-Disposition: form-data; name="x"'
            raise InvalidRequestError(detail)
        shown = name.decode("utf-8", "replace")
        if encoding.lower() not in _IDENTITIES:
            raise UnreadableEncodingError(
                _of(shown, f"the Content-Transfer-Encoding is {excerpt(encoding)!r}; use none")
            )
        return shown


class PartReader(ChunkReader):
    """One part of a form, read like a body. It ends before the next boundary."""

    def __init__(self, name: str, form: FormReader) -> None:
        super().__init__(form.body.limit, None, form.body.reserve)
        self.name = name
        self._form = form

    async def _message(self) -> bytes:
        kind, data = await self._form.event()
        if kind != _DATA:
            self._more = False
            return b""
        self.received += len(data)
        return data

    async def array(self, count: int) -> NDArray[np.uint8]:
        """Return the next `count` bytes, as `take` does. A part is no longer than what is left of the body."""
        left = self._form.bytes_left
        self.declared = None if left is None else left + len(self._chunk) - self._at
        return await self.take(count)

    async def text(self, max_bytes: int) -> str:
        """Return the part as text, without the blanks around it. Raise LimitError or MalformedRequestError."""
        data = (await self.take(max_bytes + 1)).tobytes()
        if len(data) > max_bytes:
            raise LimitError(f"{self.name}: more than {max_bytes} bytes", limit=max_bytes, pointer=pointer(self.name))
        try:
            return data.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise MalformedRequestError(_of(self.name, "the text is not UTF-8")) from None


def _of(name: str, detail: str) -> str:
    return f"form field {excerpt(name)}: {detail}"
