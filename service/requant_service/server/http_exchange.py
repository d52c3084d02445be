"""One request and its response, as the `receive` and `send` of ASGI, and the bytes of those that follow it.

The body is handed on as it was read from the socket: a read that holds nothing else is not copied. The head of a
response is written together with the first part of its body, as ASGI asks for: one system call instead of two, which is
7 % of a small request.

HTTP/1.1 answers in order, so a request that is sent before the one ahead of it is answered can only wait. It waits as
bytes, at most one read beyond the high-water mark, and costs nothing else: no parsing, no task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Scope

from requant.errors import OverloadedError
from requant_service.runtime.memory_budget import MemoryBudget, Reservation
from requant_service.server.timeouts import WriteTimeoutTransport

HIGH_WATER_BYTES = 64 << 10
"""Reading pauses when more is kept than that."""


class PendingRequests:
    """The flow control of one connection: the bytes that are not parsed yet, because of which reading may pause.

    They are counted in the memory budget, and cut between messages.
    """

    def __init__(self, transport: asyncio.Transport, budget: MemoryBudget) -> None:
        self.read_paused = False
        self.write_paused = False
        self._transport = transport
        self._writable = asyncio.Event()
        self._reservation = Reservation(budget)
        self._bytes = b""
        self._at = 0

    def __len__(self) -> int:
        return len(self._bytes) - self._at

    def add(self, data: bytes) -> None:
        """Keep what was received."""
        self._bytes = self._bytes[self._at :] + data if self else data
        self._at = 0

    def take(self, body_bytes: int, max_bytes: int) -> memoryview:
        """Return the next bytes for the parser, none beyond the end of a message.

        `body_bytes`: how much of a body of stated length is still to come. Any other message ends with an empty line,
        and so does a head; of these at most `max_bytes` bytes are returned.
        """
        at = self._at
        end = len(self._bytes)
        if body_bytes:
            end = min(end, at + body_bytes)
        elif (line_end := self._bytes.find(b"\n", at, at + 3)) >= 0:
            # Perhaps the rest of an empty line that began in the previous piece.
            end = line_end + 1
        else:
            end = min(end, at + max_bytes)
            empty_line = self._bytes.find(b"\r\n\r\n", at, end)
            if empty_line >= 0:
                end = empty_line + 4
        self._at = end
        return memoryview(self._bytes)[at:end]

    def reserve(self) -> None:
        """Reserve memory for what is left, and pause reading if that is much. Raise OverloadedError without memory."""
        if self._at == len(self._bytes):
            self._bytes, self._at = b"", 0
            if not self._reservation.held:
                return
        more = len(self._bytes) - self._reservation.held
        if more > 0 and not self._reservation.try_grow(more):
            raise OverloadedError("no memory for pipelined requests")
        if more < 0:
            self._reservation.shrink(-more)
        if len(self) > HIGH_WATER_BYTES:
            self.pause_reading()

    def clear(self) -> None:
        """Drop what is left, and resume reading."""
        self._bytes, self._at = b"", 0
        self.reserve()
        self.resume_reading()

    def pause_reading(self) -> None:
        """Stop reading from the socket."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading, unless too much is pending already."""
        if self.read_paused and len(self) <= HIGH_WATER_BYTES:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Make `drain` wait: too much of what was written is unread."""
        self.write_paused = True
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let writing continue."""
        self.write_paused = False
        self._writable.set()

    async def drain(self) -> None:
        """Wait until the client has read enough of what was written."""
        await self._writable.wait()


_log = logging.getLogger("uvicorn.error")

STATUS_LINE = {status.value: b"HTTP/1.1 %d %b" % (status, status.phrase.encode()) for status in HTTPStatus}

# A body of at most this length is copied behind the head of its response.
_SMALL = 64 << 10
_BODILESS = frozenset({204, 304})


class HttpExchange:
    """A request that is received, and the response that is sent to it, on one connection.

    `default_headers` begin the head of every response. `on_response` is called when the response is complete.
    `expects_continue`: whether the client waits for `100 Continue` before it sends the body.
    """

    __slots__ = (
        "_chunks",
        "_expects_continue",
        "_flow",
        "_head",
        "_left",
        "_on_response",
        "_transport",
        "_unread_end",
        "_waiter",
        "body_bytes",
        "default_headers",
        "disconnected",
        "keep_alive",
        "response_complete",
        "response_started",
        "scope",
    )

    def __init__(
        self,
        scope: Scope,
        transport: WriteTimeoutTransport,
        flow: PendingRequests,
        on_response: Callable[[], None],
        default_headers: list[tuple[bytes, bytes]],
        *,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.default_headers = default_headers
        self.disconnected = False
        self.response_started = False
        self.response_complete = False
        self.body_bytes = 0
        self._transport = transport
        self._flow = flow
        self._on_response = on_response
        self._expects_continue = expects_continue
        self._chunks: list[bytes] = []
        self._unread_end = False
        self._waiter: asyncio.Future[None] | None = None
        self._head = b""
        self._left = 0

    def body_arrives(self, chunk: bytes, *, ends: bool = False) -> None:
        """Keep a part of the body until the application receives it. `body_bytes` is how much is kept.

        `ends`: it is the last part.
        """
        self._chunks.append(chunk)
        self.body_bytes += len(chunk)
        self._unread_end = ends
        if self._waiter is not None:
            self._wake()

    def body_ends(self) -> None:
        """The body was received."""
        self._unread_end = True
        if self._waiter is not None:
            self._wake()

    def disconnect(self) -> None:
        """The connection is lost or will be closed. The application sees that its client has left."""
        if not self.response_complete:
            self.disconnected = True
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def run(self, app: ASGIApp) -> None:
        """Let the application answer. What it raises is logged, and answered with 500 if nothing was sent yet."""
        try:
            await app(self.scope, self.receive, self.send)
        except (Exception, asyncio.CancelledError) as error:  # nobody awaits this
            _log.error("Exception in ASGI application\n", exc_info=error)
        if self.disconnected or self.response_complete:
            return
        if self.response_started:
            self._transport.close()
        else:
            await self._fail()

    async def _fail(self) -> None:
        text = b"Internal Server Error"
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(text)),
            (b"connection", b"close"),
        ]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": text})

    async def receive(self) -> Message:
        """Return a part of the body once one has arrived; after the body, wait for the client to leave."""
        if self._expects_continue and not self._transport.is_closing():
            self._expects_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._flow.read_paused:
            self._flow.resume_reading()
        while not (self._chunks or self._unread_end or self.disconnected or self.response_complete):
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        chunks, more = self._chunks, not self._unread_end
        self._chunks, self._unread_end, self.body_bytes = [], False, 0
        return {
            "type": "http.request",
            "body": chunks[0] if len(chunks) == 1 else b"".join(chunks),
            "more_body": more,
        }

    async def send(self, message: Message) -> None:
        """Send the head of the response, or a part of its body, when the client has read enough of what was sent.

        Raise RuntimeError for a response that is not of the length that it states.
        """
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        if self.response_started:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            self.response_started = True
            self._expects_continue = False
            self._make_head(message["status"], message["headers"])

    def _make_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        length = b"0" if status in _BODILESS else b""
        closes = False
        for name, value in headers:
            if name == b"content-length":
                length = value
            elif name == b"connection":
                closes = value == b"close"
        lines = [*map(b": ".join, self.default_headers), *map(b": ".join, headers)]
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close")
        together = b"".join(lines)
        if b"\n" in together or b"\r" in together:
            raise RuntimeError("a header field of the response has a line break")
        self._head = b"\r\n".join([STATUS_LINE[status], *lines, b"", b""])
        self._left = 0 if self.scope["method"] == "HEAD" else int(length)

    def _send_body(self, body: bytes | memoryview, *, more: bool) -> None:
        head, size = self._head, len(body)
        if self.scope["method"] == "HEAD":
            body, size = b"", 0
        self._left -= size
        if self._left < 0 or (self._left and not more):
            raise RuntimeError("the body of the response has another length than its Content-Length")
        if not head:
            if size:
                self._transport.write(body)
        else:
            self._head = b""
            if size <= _SMALL:
                self._transport.write(b"".join((head, body)))
            else:
                self._transport.writelines((head, body))
        if not more:
            self.response_complete = True
            if self._waiter is not None:
                self._wake()
            if not self.keep_alive:
                self._transport.close()
            self._on_response()
