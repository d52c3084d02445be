"""Compressed request bodies, inflated while they are received, within two bounds.

A bomb is small on the wire: a few KiB of zeros can inflate to GiB. What inflates is handed on in pieces of a bounded
size, the reader that asks for them counts them, and a body that grows more than a hundredfold is refused on the way.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from requant.errors import LimitError, MalformedRequestError, UnreadableEncodingError, excerpt
from requant_service.http.request_body import BodyReader
from requant_service.runtime.executor import Executor
from requant_service.runtime.request_context import context_of

MAX_GROWTH = 100

# Up to here a body may grow as it likes: it costs nothing, and short tensors of zeros are no bombs.
_FREE_BYTES = 1 << 20

PIECE_BYTES = 256 << 10

# What zlib calls the two forms: a gzip member, and the zlib format, which HTTP calls deflate (RFC 9110 section 8.4.1).
_WINDOW_BITS: Mapping[str, int] = {
    "gzip": 16 + zlib.MAX_WBITS,
    "x-gzip": 16 + zlib.MAX_WBITS,
    "deflate": zlib.MAX_WBITS,
}
CODINGS = frozenset(_WINDOW_BITS)
"""The names of codings that can be inflated."""


def open_body(scope: Scope, receive: Receive, limit: int, executor: Executor) -> BodyReader:
    """Return the body of a request as it was before compression. `limit` bounds both forms of it."""
    reader = BodyReader(scope, receive, limit)
    if b"content-encoding" not in context_of(scope).headers:
        return reader
    coding = ", ".join(Headers(scope=scope).getlist("content-encoding")).strip().lower()
    if coding in ("", "identity"):
        return reader
    if coding not in _WINDOW_BITS:
        raise UnreadableEncodingError(f"the content encoding is {excerpt(coding)!r}; supported are gzip and deflate")
    return BodyReader(scope, _Inflater(coding, receive, limit, executor).receive, limit, compressed=True)


class PieceInflater:
    """Inflates in pieces what is added, within `limit` bytes for both forms, and the growth that is allowed.

    `subject`: what errors call it. Raises LimitError, or MalformedRequestError for data that is not of the coding.
    """

    def __init__(self, coding: str, limit: int, subject: str = "body") -> None:
        self.waiting = b""
        self._coding = coding
        self._limit = limit
        self._subject = subject
        self._zlib = zlib.decompressobj(_WINDOW_BITS[coding])
        self._taken = 0
        self._given = 0

    @property
    def weight(self) -> int:
        """About how many bytes the next piece has."""
        # Short ones are not worth a change of thread, as long as they do not grow to more.
        return min(PIECE_BYTES, len(self.waiting) * MAX_GROWTH)

    def add(self, data: bytes) -> None:
        """Take more, when nothing waits."""
        self.waiting = data

    def next_piece(self) -> bytes:
        """Return at most `PIECE_BYTES` of what is inflated. There is more while it returns some, or something waits."""
        # What zlib holds back when a piece is full comes with the next one: the stream's own end is still to be read.
        waiting = self.waiting
        try:
            piece = self._zlib.decompress(waiting, PIECE_BYTES)
        except zlib.error:
            raise MalformedRequestError(
                f"the {self._subject} is not {self._coding}, although its header says so"
            ) from None
        if self._zlib.unused_data:
            raise MalformedRequestError(f"the {self._subject} has bytes after the end of the {self._coding} data")
        self.waiting = self._zlib.unconsumed_tail
        self._taken += len(waiting) - len(self.waiting)
        self._given += len(piece)
        if max(self._taken, self._given) > self._limit:
            form = "compressed " if self._taken > self._limit else ""
            raise LimitError(f"the {form}{self._subject} exceeds the limit of {self._limit} bytes", limit=self._limit)
        if self._given > max(_FREE_BYTES, MAX_GROWTH * self._taken):
            raise LimitError(
                f"the {self._subject} grows more than {MAX_GROWTH} times when it is inflated; send it uncompressed",
                limit=MAX_GROWTH,
            )
        return piece

    def finish(self) -> None:
        """Check that the data has its own end."""
        if not self._zlib.eof:
            raise MalformedRequestError(f"the {self._subject} ends before its {self._coding} data")


class _Inflater:
    """Receives the messages of a compressed body, and hands on those of the inflated one."""

    def __init__(self, coding: str, receive: Receive, limit: int, executor: Executor) -> None:
        self._inflater = PieceInflater(coding, limit)
        self._receive = receive
        self._executor = executor
        self._more = True

    async def receive(self) -> Message:
        """Return the next piece of the inflated body, or what the server says instead."""
        inflater = self._inflater
        while not inflater.waiting:
            if not self._more:
                inflater.finish()
                return {"type": "http.request", "body": b"", "more_body": False}
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return message
            inflater.add(message.get("body", b""))
            self._more = message.get("more_body", False)
        piece = await self._executor.run_array(inflater.weight, inflater.next_piece)
        return {"type": "http.request", "body": piece, "more_body": True}
