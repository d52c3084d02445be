"""The body of a request, taken from ASGI messages straight to where it is used, and inflated on the way.

Starlette's `request.body()` keeps a list of chunks and joins them, and its `stream()` may hand the messages to someone
else. Here each chunk is counted before anything is done with it. Its elements are handed out in place, so that
computing begins before the rest has arrived, or each chunk is copied once, to its destination.

A compressed bomb is small on the wire: a few KiB of zeros can inflate to GiB. What inflates is handed on in pieces of a
bounded size, the reader that asks for them counts them, and a body that grows more than a hundredfold is refused.
"""

from __future__ import annotations

import ctypes
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from requant.errors import LimitError, MalformedRequestError, UnreadableEncodingError, excerpt
from requant_service.runtime.executor import Executor
from requant_service.runtime.request_context import Reserve, context_of

_FORM = "application/x-www-form-urlencoded"
_ELSEWHERE = {
    "multipart/form-data": "forms are read by the routes under /v1/multipart",
    "application/json": "JSON is read by /v1/quantize and its like",
    "application/octet-stream": ".npy files are read by the routes under /v1/npy",
    "application/vnd.safetensors": "safetensors files are read by the routes under /v1/npy",
}
_INITIAL_BYTES = 64 << 10


def require_media_type(headers: Mapping[bytes, bytes], served: Collection[str]) -> None:
    """Refuse a body in another media type than the `served` ones. A missing media type counts as the right one."""
    if headers.get(b"content-type", b"").decode("latin-1") not in served:
        media = media_type(headers)
        if media and media not in served:
            raise UnreadableEncodingError(_other_media_type(media, served))
    if b"content-encoding" in headers:
        coding = headers[b"content-encoding"].decode("latin-1").strip().lower()
        if coding not in ("", "identity"):
            raise UnreadableEncodingError(f"the content encoding is {excerpt(coding)!r}; bodies are read uncompressed")


def media_type(headers: Mapping[bytes, bytes]) -> str:
    """Return the media type of a body without its parameters, empty if there is none."""
    return headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()


def _other_media_type(media: str, served: Collection[str]) -> str:
    """Say what a route reads. curl and HTML forms send the type of a form by default."""
    reads = " or ".join(sorted(each for each in served if each != _FORM))
    of_curl = ", which curl sends by default" if media == _FORM else ""
    advice = f": send the header `Content-Type: {reads}`" if len(served) == 1 and "multipart" not in reads else ""
    elsewhere = next((f"; {where}" for kind, where in _ELSEWHERE.items() if media == kind), "")
    return f"the content type is {excerpt(media)!r}{of_curl}; this route reads {reads}{advice}{elsewhere}"


class ChunkReader(ABC):
    """Bytes that come in chunks, handed out in the sizes that the caller asks for, never more than `limit` in all.

    `declared` bounds how many come, None if that is not known; `received` is how many have come. Memory for what is
    kept is reserved first (`requant_service.runtime.memory_budget`).
    """

    def __init__(self, limit: int, declared: int | None, reserve: Reserve) -> None:
        self.limit = limit
        self.reserve = reserve
        self.declared = declared
        self.received = 0
        self._chunk = b""
        self._at = 0
        self._more = True

    @abstractmethod
    async def _message(self) -> bytes:
        """Wait for the next chunk, count it, and say whether there are more. It may be empty."""

    async def _next_chunk(self) -> bool:
        """Receive until there is something to hand out. False at the end."""
        while self._at == len(self._chunk):
            if not self._more:
                return False
            self._chunk, self._at = await self._message(), 0
        return True

    @property
    def consumed(self) -> int:
        """How many bytes were handed out."""
        return self.received - len(self._chunk) + self._at

    @property
    def at_end(self) -> bool:
        """Whether all has come and was handed out."""
        return not self._more and self._at == len(self._chunk)

    async def next_bytes(self) -> bytes:
        """Return what comes next, as much as has arrived: at least a byte, unless the body ends. It is not consumed."""
        if self._at == len(self._chunk):
            await self._next_chunk()
        return self._chunk[self._at :]

    def consume(self, count: int) -> None:
        """Count the next `count` bytes as handed out."""
        self._at += count

    async def head(self, count: int) -> bytes:
        """Return the next `count` bytes, or as many as there are: for the few that come before the elements."""
        if self._at == len(self._chunk) and self._more:
            self._chunk, self._at = await self._message(), 0
        stop = self._at + count
        if stop <= len(self._chunk):
            head = self._chunk[self._at : stop]
            self._at = stop
            return head
        head = b""
        while len(head) < count and await self._next_chunk():
            taken = self._chunk[self._at : self._at + count - len(head)]
            self._at += len(taken)
            head = head + taken if head else taken
        return head

    async def elements(self, dtype: np.dtype[Any], group: int, most: int) -> NDArray[Any]:
        """Return what has arrived as at most `most` elements of `dtype`, in whole groups: at least one, where there is.

        They are a view of what was received, or a copy if that is not aligned. At the end of the body come the elements
        that make no whole group, and then an empty array. Bytes that make no element stay unread.
        """
        granule = dtype.itemsize * group
        if self._at == len(self._chunk) and not await self._next_chunk():
            return np.empty(0, dtype)
        while (available := len(self._chunk) - self._at) < granule and self._more:
            self._chunk, self._at = self._chunk[self._at :] + await self._message(), 0
        count = min(available // granule * group or available // dtype.itemsize, most)
        elements = np.frombuffer(self._chunk, dtype, count, self._at)
        self._at += elements.nbytes
        return elements if elements.flags.aligned else elements.copy()

    async def fill(self, target: memoryview) -> int:
        """Copy what comes next into `target` until it is full or the body ends. Return how many bytes were copied."""
        filled = 0
        while filled < len(target) and await self._next_chunk():
            taken = min(len(self._chunk) - self._at, len(target) - filled)
            target[filled : filled + taken] = memoryview(self._chunk)[self._at : self._at + taken]
            self._at += taken
            filled += taken
        return filled

    async def take(self, count: int) -> NDArray[np.uint8]:
        """Return the next `count` bytes, or as many as there are, as a writable aligned array.

        If the length of the body is known, the memory is allocated at once. Otherwise `count` is only the client's
        claim, so memory grows with the bytes that arrive.
        """
        room = min(count, _INITIAL_BYTES if self.declared is None else self.declared)
        await self.reserve(room)
        buffer = np.empty(room, np.uint8)
        filled = await self.fill(buffer.data)
        while filled == len(buffer) < count and await self._next_chunk():
            room = min(count, max(2 * len(buffer), _INITIAL_BYTES))
            await self.reserve(room)
            longer = np.empty(room, np.uint8)
            longer[:filled] = buffer
            buffer = longer
            filled += await self.fill(buffer[filled:].data)
        return buffer[:filled]

    async def rest(self) -> NDArray[np.uint8]:
        """Return all that is left."""
        return await self.take(self.limit)

    async def skip(self, count: int) -> int:
        """Receive the next `count` bytes without keeping them. Return how many there were."""
        skipped = 0
        while skipped < count and await self._next_chunk():
            passed = min(len(self._chunk) - self._at, count - skipped)
            skipped += passed
            self._at += passed
        return skipped

    async def skip_rest(self) -> int:
        """Receive the rest without keeping it. Return its length."""
        skipped = 0
        while self._more or self._at < len(self._chunk):
            await self._next_chunk()
            skipped += len(self._chunk) - self._at
            self._at = len(self._chunk)
        return skipped


class BodyReader(ChunkReader):
    """One request body. `declared` is the Content-Length, None when the body is chunked.

    A declared length over the limit is refused here, before anything is received: a client that waits for
    `100 Continue` then sends nothing at all.
    """

    def __init__(self, scope: Scope, receive: Receive, limit: int, *, compressed: bool = False) -> None:
        context = context_of(scope)
        declared = context.headers.body_bytes
        super().__init__(limit, None if compressed else declared, context.reserve)
        self._receive = receive
        if declared is not None and declared > limit:
            raise LimitError(f"the body has {declared} bytes; the limit is {limit}", limit=limit)

    async def _message(self) -> bytes:
        """Receive one message, and return the part of the body that it brings."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            expected = "more" if self.declared is None else f"{self.declared} as declared"
            raise MalformedRequestError(f"the body ended after {self.received} bytes; expected {expected}")
        chunk: bytes = message.get("body", b"")
        self._more = message.get("more_body", False)
        self.received += len(chunk)
        if self.received > self.limit:
            raise LimitError(f"the body exceeds the limit of {self.limit} bytes", limit=self.limit)
        return chunk

    async def text(self) -> bytes | bytearray:
        """Return all that is left of the body as one text."""
        if self.declared is None:
            return bytearray((await self.rest()).data)
        room = self.declared - self.received + len(self._chunk) - self._at
        await self.reserve(room)
        arrived = await self.next_bytes()
        if len(arrived) == room:
            # All in one read, and there it stays.
            self.consume(room)
            return arrived
        whole = _bytearray(room)
        filled = await self.fill(memoryview(whole))
        del whole[filled:]
        return whole


def _bytearray(size: int) -> bytearray:
    """Return `size` uninitialized bytes. `bytearray(size)` writes zeros, and so touches every page at once."""
    make = ctypes.pythonapi.PyByteArray_FromStringAndSize
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_char_p, ctypes.c_ssize_t)
    array: bytearray = make(None, size)
    return array


MAX_GROWTH = 100

# Up to here a body may grow by any factor: that costs little, and short tensors of zeros are no bombs.
_FREE_BYTES = 1 << 20

PIECE_BYTES = 256 << 10

# zlib's numbers of the two forms: a gzip member, and the zlib format, which HTTP calls deflate (RFC 9110 section
# 8.4.1).
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

    `subject`: the name of the data in errors. Raises LimitError, or MalformedRequestError for data that is not of the
    coding.
    """

    def __init__(self, coding: str, limit: int, subject: str = "body") -> None:
        self.waiting = b""
        self._coding = coding
        self._limit = limit
        self._subject = subject
        self._zlib = zlib.decompressobj(_WINDOW_BITS[coding])
        self._compressed_bytes = 0
        self._inflated_bytes = 0

    @property
    def weight(self) -> int:
        """About how many bytes the next piece has."""
        # A short one is not worth a change of thread unless it grows.
        return min(PIECE_BYTES, len(self.waiting) * MAX_GROWTH)

    def add(self, data: bytes) -> None:
        """Take more, when nothing waits."""
        self.waiting = data

    def next_piece(self) -> bytes:
        """Return at most `PIECE_BYTES` of what is inflated. There is more while it returns some, or something waits."""
        # What zlib holds back when a piece is full comes with the next one, as does the end of the stream.
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
        self._compressed_bytes += len(waiting) - len(self.waiting)
        self._inflated_bytes += len(piece)
        if max(self._compressed_bytes, self._inflated_bytes) > self._limit:
            form = "compressed " if self._compressed_bytes > self._limit else ""
            raise LimitError(f"the {form}{self._subject} exceeds the limit of {self._limit} bytes", limit=self._limit)
        if self._inflated_bytes > max(_FREE_BYTES, MAX_GROWTH * self._compressed_bytes):
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
    """Receives the messages of a compressed body, and returns those of the inflated one."""

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
