"""Compressed request bodies, inflated while they are received, within two bounds.

A bomb is small on the wire: a few KiB of zeros can inflate to GiB. What inflates is handed on in pieces of a bounded
size, the reader that asks for them counts them, and a body that grows more than a hundredfold is refused on the way.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from core.errors import LimitError, MalformedRequestError, UnreadableEncodingError, excerpt
from service.http.request_body import BodyReader
from service.runtime.executor import Executor
from service.runtime.request_context import context_of

MOST_GROWTH = 100

# Up to here a body may grow as it likes: it costs nothing, and short tensors of zeros are no bombs.
_FREE_BYTES = 1 << 20

_PIECE = 256 << 10

# What zlib calls the two forms: a gzip member, and the zlib format, which HTTP calls deflate (RFC 9110 section 8.4.1).
_WINDOW_BITS: Mapping[str, int] = {
    "gzip": 16 + zlib.MAX_WBITS,
    "x-gzip": 16 + zlib.MAX_WBITS,
    "deflate": zlib.MAX_WBITS,
}


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


class _Inflater:
    """Receives the messages of a compressed body, and hands on those of the inflated one."""

    def __init__(self, coding: str, receive: Receive, limit: int, executor: Executor) -> None:
        self._coding = coding
        self._receive = receive
        self._limit = limit
        self._executor = executor
        self._zlib = zlib.decompressobj(_WINDOW_BITS[coding])
        self._waiting = b""
        self._more = True
        self._taken = 0
        self._given = 0

    async def receive(self) -> Message:
        """Return the next piece of the inflated body, or what the server says instead."""
        while not self._waiting:
            if not self._more:
                return self._end()
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return message
            self._waiting = message.get("body", b"")
            self._more = message.get("more_body", False)
        # Short ones are not worth a change of thread, as long as they do not grow to more.
        weight = min(_PIECE, len(self._waiting) * MOST_GROWTH)
        piece = await self._executor.run_array(weight, self._next_piece)
        if self._taken > self._limit:
            raise LimitError(f"the compressed body exceeds the limit of {self._limit} bytes", limit=self._limit)
        if self._given > max(_FREE_BYTES, MOST_GROWTH * self._taken):
            raise LimitError(
                f"the body grows more than {MOST_GROWTH} times when it is inflated; send it uncompressed",
                limit=MOST_GROWTH,
            )
        return {"type": "http.request", "body": piece, "more_body": True}

    def _next_piece(self) -> bytes:
        # What zlib holds back when a piece is full comes with the next one: the stream's own end is still to be read.
        waiting = self._waiting
        try:
            piece = self._zlib.decompress(waiting, _PIECE)
        except zlib.error:
            raise MalformedRequestError(f"the body is not {self._coding}, although its header says so") from None
        if self._zlib.unused_data:
            raise MalformedRequestError(f"the body has bytes after the end of the {self._coding} data")
        self._waiting = self._zlib.unconsumed_tail
        self._taken += len(waiting) - len(self._waiting)
        self._given += len(piece)
        return piece

    def _end(self) -> Message:
        if not self._zlib.eof:
            raise MalformedRequestError(f"the body ends before its {self._coding} data")
        return {"type": "http.request", "body": b"", "more_body": False}
