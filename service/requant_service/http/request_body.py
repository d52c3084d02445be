"""The body of a request, taken from ASGI messages straight to where it is used.

Starlette's `request.body()` keeps a list of chunks and joins them, and its `stream()` may hand the messages to someone
else. Here each chunk is counted before anything is done with it. Its elements are handed out where they lie, so that
they can be computed with while the rest is on its way, or each chunk is copied once, to its final place.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.types import Receive, Scope

from requant.errors import LimitError, MalformedRequestError, UnreadableEncodingError, excerpt
from requant_service.runtime.request_context import context_of, reserve_memory

_FORM = "application/x-www-form-urlencoded"
_ELSEWHERE = {
    "multipart/form-data": "forms are read by the routes under /v1/multipart",
    "application/json": "JSON is read by /v1/quantize and its like",
    "application/octet-stream": ".npy files are read by the routes under /v1/npy",
    "application/vnd.safetensors": "safetensors files are read by the routes under /v1/npy",
}
_FIRST_ROOM = 64 << 10


def require_media_type(headers: Mapping[str, str], served: Collection[str]) -> None:
    """Refuse a body in another media type than the `served` ones. No media type at all is taken for the right one."""
    given = media_type(headers)
    if given and given not in served:
        raise UnreadableEncodingError(_other_media_type(given, served))
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise UnreadableEncodingError(f"the content encoding is {excerpt(coding)!r}; bodies are read uncompressed")


def media_type(headers: Mapping[str, str]) -> str:
    """Return the media type of a body without its parameters, empty if there is none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _other_media_type(given: str, served: Collection[str]) -> str:
    """Say what a route reads. curl and HTML forms send the type of a form unless they are told another one."""
    reads = " or ".join(sorted(each for each in served if each != _FORM))
    of_curl = ", which curl sends by default" if given == _FORM else ""
    advice = f": send the header `Content-Type: {reads}`" if len(served) == 1 and "multipart" not in reads else ""
    elsewhere = next((f"; {where}" for kind, where in _ELSEWHERE.items() if given == kind), "")
    return f"the content type is {excerpt(given)!r}{of_curl}; this route reads {reads}{advice}{elsewhere}"


class ChunkReader(ABC):
    """Bytes that come in chunks, handed out in the sizes that the caller asks for, never more than `limit` in all.

    `declared` bounds how many come, None if that is not known; `received` is how many have come. Memory for what is
    kept is reserved first (`requant_service.runtime.memory_budget`).
    """

    def __init__(self, limit: int, declared: int | None, reserve: Callable[[int], Awaitable[None]]) -> None:
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
    def handed_out(self) -> int:
        """How much was handed out."""
        return self.received - len(self._chunk) + self._at

    async def next_bytes(self) -> bytes:
        """Return what comes next, as much as is there: at least a byte, unless it ends. It is not handed out."""
        await self._next_chunk()
        return self._chunk[self._at :]

    def pass_over(self, count: int) -> None:
        """Take `count` of the next bytes for handed out."""
        self._at += count

    async def head(self, count: int) -> bytes:
        """Return the next `count` bytes, or as many as there are: for the few that come before the elements."""
        stop = self._at + count
        if stop <= len(self._chunk):
            found = self._chunk[self._at : stop]
            self._at = stop
            return found
        found = b""
        while len(found) < count and await self._next_chunk():
            taken = self._chunk[self._at : self._at + count - len(found)]
            self._at += len(taken)
            found = found + taken if found else taken
        return found

    async def elements(self, dtype: np.dtype[Any], group: int, most: int) -> NDArray[Any]:
        """Return what has arrived as at most `most` elements of `dtype`, in whole groups: at least one, where there is.

        They lie where they were received, or are a copy where that is at odd addresses. At the end of the body come
        the elements that make no whole group, and then an empty array. Bytes that make no element stay unread.
        """
        granule = dtype.itemsize * group
        if not await self._next_chunk():
            return np.empty(0, dtype)
        while (available := len(self._chunk) - self._at) < granule and self._more:
            self._chunk, self._at = self._chunk[self._at :] + await self._message(), 0
        count = min(available // granule * group or available // dtype.itemsize, most)
        found = np.frombuffer(self._chunk, dtype, count, self._at)
        self._at += found.nbytes
        return found if found.flags.aligned else found.copy()

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

        When a bound of what comes is known, the memory is allocated at once. Otherwise `count` is only what
        somebody promised, so memory grows with the bytes that arrive.
        """
        room = min(count, _FIRST_ROOM if self.declared is None else self.declared)
        await self.reserve(room)
        buffer = np.empty(room, np.uint8)
        filled = await self.fill(buffer.data)
        while filled == len(buffer) < count and await self._next_chunk():
            room = min(count, max(2 * len(buffer), _FIRST_ROOM))
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
        while await self._next_chunk():
            skipped += len(self._chunk) - self._at
            self._at = len(self._chunk)
        return skipped


class BodyReader(ChunkReader):
    """One request body. `declared` is the Content-Length, None when the body is chunked.

    A declared length over the limit is refused here, before anything is received: a client that waits for
    `100 Continue` then sends nothing at all.
    """

    def __init__(self, scope: Scope, receive: Receive, limit: int, *, compressed: bool = False) -> None:
        super().__init__(limit, None, partial(reserve_memory, scope))
        self._receive = receive
        fields = context_of(scope).headers
        text = fields.get(b"content-length")
        if text is not None and not (text.isdigit() and len(text) < 20):
            shown = excerpt(text.decode("latin-1"))
            raise MalformedRequestError(f"the Content-Length is {shown!r}; expected a decimal number")
        self.declared = None if text is None else int(text)
        if text is None and b"transfer-encoding" not in fields:
            self.declared = 0
        if self.declared is not None and self.declared > limit:
            raise LimitError(f"the body has {self.declared} bytes; the limit is {limit}", limit=limit)
        if compressed:
            self.declared = None

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

    async def text(self) -> bytearray:
        """Return all that is left of the body as one text."""
        if self.declared is None:
            return bytearray((await self.rest()).data)
        room = self.declared - self.received + len(self._chunk) - self._at
        await self.reserve(room)
        whole = _bytearray(room)
        filled = await self.fill(memoryview(whole))
        del whole[filled:]
        return whole


def _bytearray(size: int) -> bytearray:
    """Return `size` bytes that hold anything. `bytearray(size)` writes zeros, and so waits for every page at once."""
    make = ctypes.pythonapi.PyByteArray_FromStringAndSize
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_char_p, ctypes.c_ssize_t)
    made: bytearray = make(None, size)
    return made
