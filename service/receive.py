"""The body of a request, taken from ASGI messages straight into the memory where it is used.

Starlette's `request.body()` keeps a list of chunks and joins them, and its `stream()` may hand the messages to someone
else. Here each chunk is copied once, to its final place, and counted before it is copied.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from core.errors import LimitError, MalformedRequestError, UnreadableEncodingError, excerpt

_FIRST_ROOM = 64 << 10


def require_media_type(headers: Headers, served: Collection[str]) -> None:
    """Refuse a body in another media type than the `served` ones. No media type at all is taken for the right one."""
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    if given and given not in served:
        raise UnreadableEncodingError(
            f"the content type is {excerpt(given)!r}; this route reads {' or '.join(sorted(served))}"
        )
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise UnreadableEncodingError(f"the content encoding is {excerpt(coding)!r}; bodies are read uncompressed")


class BodyReader:
    """One request body, handed out in the sizes that the caller asks for, never more than `limit` bytes in all.

    `declared` is the Content-Length, None when the body is chunked. A declared length over the limit is refused here,
    before anything is received: a client that waits for `100 Continue` then sends nothing at all.
    """

    def __init__(self, scope: Scope, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._received = 0
        self._chunk = memoryview(b"")
        self._more = True
        headers = Headers(scope=scope)
        text = headers.get("content-length")
        if text is not None and not (text.isascii() and text.isdigit()):
            raise MalformedRequestError(f"the Content-Length is {excerpt(text)!r}; expected a decimal number")
        self.declared: int | None = None if text is None else int(text)
        if text is None and "transfer-encoding" not in headers:
            self.declared = 0
        if self.declared is not None and self.declared > limit:
            raise LimitError(f"the body has {self.declared} bytes; at most {limit} are taken here", limit=limit)

    async def _next_chunk(self) -> bool:
        """Receive until there is something to hand out. False at the end of the body."""
        while self._more and not self._chunk:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                expected = "more" if self.declared is None else f"{self.declared} as declared"
                raise MalformedRequestError(f"the body ended after {self._received} bytes; expected {expected}")
            self._chunk = memoryview(message.get("body", b""))
            self._more = message.get("more_body", False)
            self._received += len(self._chunk)
            if self._received > self._limit:
                raise LimitError(f"the body is longer than the {self._limit} bytes taken here", limit=self._limit)
        return bool(self._chunk)

    async def fill(self, target: memoryview) -> int:
        """Copy what comes next into `target` until it is full or the body ends. Return how many bytes were copied."""
        filled = 0
        while filled < len(target) and await self._next_chunk():
            taken = min(len(self._chunk), len(target) - filled)
            target[filled : filled + taken] = self._chunk[:taken]
            self._chunk = self._chunk[taken:]
            filled += taken
        return filled

    async def take(self, count: int) -> NDArray[np.uint8]:
        """Return the next `count` bytes, or as many as there are, as a writable aligned array.

        When the length of the body is known, the memory is allocated at once. In a chunked body `count` is only what
        somebody promised, so memory grows with the bytes that arrive.
        """
        room = min(count, _FIRST_ROOM if self.declared is None else self.declared)
        buffer = np.empty(room, np.uint8)
        filled = await self.fill(buffer.data)
        while filled == len(buffer) < count and await self._next_chunk():
            longer = np.empty(min(count, max(2 * len(buffer), _FIRST_ROOM)), np.uint8)
            longer[:filled] = buffer
            buffer = longer
            filled += await self.fill(buffer[filled:].data)
        return buffer[:filled]

    async def rest(self) -> NDArray[np.uint8]:
        """Return all that is left of the body."""
        return await self.take(self._limit)

    async def skip_rest(self) -> int:
        """Receive the rest of the body without keeping it. Return its length."""
        skipped = 0
        while await self._next_chunk():
            skipped += len(self._chunk)
            self._chunk = memoryview(b"")
        return skipped
