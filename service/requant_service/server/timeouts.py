"""Timeouts of a connection: to receive a request, to send a response, and to close after the last one.

uvicorn has none of these, and no limit on the size of a head. A client that sends a byte a second on a thousand
connections would hold them all forever, and one that sends a header without an end would fill the memory. A client that
asks for a large tensor and does not read it would keep its memory in use. So a body and a response may each take some
seconds, and one more for each MiB.

A connection is not closed at once (RFC 9112 section 9.6): with bytes of the client unread that would reset it, and
discard what the client has not read of the responses. A client that sends everything before it reads would never see
why it was refused. So only our side is closed, and what the client sends is discarded until it closes its own side,
pauses or sends too much.

TLS as asyncio has it cannot close one side. There the client learns from `Connection: close` that it got the last
response, and its connection is closed when the system has sent all of it.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from requant.errors import LargeHeadError, SlowRequestError
from requant_service.runtime.settings import MIN_BYTES_PER_SECOND


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bytes and fields of a head; seconds for a head, and for a body beside those for its size."""

    head_bytes: int = 32 << 10
    header_fields: int = 100
    head_seconds: float = 10.0
    body_seconds: float = 30.0

    @property
    def framing_bytes(self) -> int:
        """The bytes of a head with its separators, and of what else surrounds a body: chunk sizes, trailers."""
        return 2 * self.head_bytes

    def check_head(self, target: bytes, fields: Sequence[tuple[bytes, bytes]]) -> None:
        """Raise LargeHeadError for a head with too many bytes or fields."""
        if len(target) + sum([len(name) + len(value) for name, value in fields]) > self.head_bytes:
            raise self.too_many_bytes()
        if len(fields) > self.header_fields:
            raise LargeHeadError(f"the head has more than {self.header_fields} header fields")

    def too_many_bytes(self) -> LargeHeadError:
        """Return the error for a head with too many bytes."""
        return LargeHeadError(
            f"the path, the query and the header fields have more than {self.head_bytes} bytes; "
            "long types go into a JSON body"
        )


class Stage(Enum):
    """Which part of a request a connection waits for."""

    FIRST_HEAD = "first head"
    HEAD = "head"
    BODY = "body"
    COMPLETE = "complete"


class ReadTimeouts:
    """The read timeouts of one connection. The protocol reports what its parser sees.

    One timer serves a connection for all of its life. It is not set again for each request: when it fires, it checks
    whether what it was set for still holds. A request that is received in one piece sets none.
    """

    def __init__(
        self, limits: RequestLimits, loop: asyncio.AbstractEventLoop, expired: Callable[[SlowRequestError], None]
    ) -> None:
        self.stage = Stage.FIRST_HEAD
        self._limits = limits
        self._loop = loop
        self._expired = expired
        self._request = 0
        self._body_bytes = 0
        self._timed = (Stage.COMPLETE, 0)
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def head_begins(self) -> None:
        """The first byte of a request was received."""
        self.stage = Stage.HEAD
        self._request += 1

    def head_ends(self, body_bytes: int) -> None:
        """The head was parsed. `body_bytes`: the stated length of the body."""
        self.stage = Stage.BODY
        self._body_bytes = body_bytes

    def body_ends(self) -> None:
        """The request was received completely."""
        self.stage = Stage.COMPLETE

    def update(self) -> None:
        """Start the timeout of the current stage unless it runs already. Called at the start and after each read."""
        current = (self.stage, self._request)
        if current == self._timed:
            return
        self._timed = current
        if self.stage is Stage.COMPLETE:
            return
        seconds = self._limits.head_seconds
        if self.stage is Stage.BODY:
            seconds = self._limits.body_seconds + self._body_bytes / MIN_BYTES_PER_SECOND
        self._due = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._due:
            self._set()

    def _set(self) -> None:
        self.cancel()
        self._timer = self._loop.call_at(self._due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._timed[0] is Stage.COMPLETE:
            return
        if self._loop.time() < self._due:
            self._set()
            return
        part = "body" if self._timed[0] is Stage.BODY else "head"
        self._expired(SlowRequestError(f"the {part} of the request did not arrive in time"))

    def cancel(self) -> None:
        """Stop the timer: the connection is closed, or will be."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


# How much is received and discarded after the last response, and for how long: in all, and while nothing arrives.
_LINGER_BYTES = 256 << 20
_LINGER_SECONDS = 10.0
_PAUSE_SECONDS = 0.5


class WriteTimeoutTransport(asyncio.Transport):
    """The transport of one connection, around uvloop's. The protocol reports when writing pauses.

    `seconds`: the write timeout of a response, beside the time for its size.
    """

    def __init__(self, transport: asyncio.Transport, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._half_closes = transport.can_write_eof()
        self._seconds = seconds
        self._loop = loop
        self._response: object = None
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._discarded = 0
        self._discarded_before = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write a part of a response unless the connection is closed, where uvloop would raise."""
        if not (self._closing or self._transport.is_closing()):
            self._transport.write(data)

    def writelines(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write several parts of a response in one call."""
        if not self.is_closing():
            self._transport.writelines(parts)

    def is_closing(self) -> bool:
        """Return whether no response can be written any more."""
        return self._closing or self._transport.is_closing()

    def writing_paused(self, response: object) -> None:
        """Start the write timeout: the client does not read what was written of a response."""
        if self._closing:
            return
        if response is not self._response:
            self._response = response
            self._due = self._loop.time() + self._seconds
        self._due += self._transport.get_write_buffer_size() / MIN_BYTES_PER_SECOND
        self.cancel()
        self._timer = self._loop.call_at(self._due, self.abort)

    def writing_resumed(self) -> None:
        """Stop the write timeout."""
        if not self._closing:
            self.cancel()

    def close(self) -> None:
        """Close our side after what was written, and give the client time to read and to close its own."""
        if self.is_closing():
            return
        self._closing = True
        self.cancel()
        if self._half_closes:
            self._transport.write_eof()
        waiting = self._transport.get_write_buffer_size()
        seconds = _LINGER_SECONDS if self._is_sent() else self._seconds + waiting / MIN_BYTES_PER_SECOND
        self._due = self._loop.time() + seconds
        self._timer = self._loop.call_later(_PAUSE_SECONDS, self._on_timer)

    def discard(self, byte_count: int) -> None:
        """Count bytes that were received after the end."""
        self._discarded += byte_count
        if self._discarded > _LINGER_BYTES:
            self.abort()

    def _on_timer(self) -> None:
        """Close if the client neither sends nor has anything left to read; reset if its time is over."""
        if self._discarded == self._discarded_before and self._is_sent():
            self._transport.close()
            if not self._half_closes:
                # TLS waits for the client to close as well. Many never do.
                self._timer = self._loop.call_later(_PAUSE_SECONDS, self._transport.abort)
        elif self._loop.time() >= self._due:
            self.abort()
        else:
            self._discarded_before = self._discarded
            self._timer = self._loop.call_later(_PAUSE_SECONDS, self._on_timer)

    def _is_sent(self) -> bool:
        """Return whether all that was written was sent; with TLS, whether the client's system has received it.

        Encrypted bytes wait in a buffer below, which is visible only in the system's send queue: that is never empty
        for long while something waits to enter it.
        """
        if self._transport.get_write_buffer_size():
            return False
        if self._half_closes:
            return True
        descriptor = self._transport.get_extra_info("socket").fileno()
        (unsent,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))
        return bool(unsent == 0)

    def abort(self) -> None:
        """Reset the connection."""
        self._closing = True
        self.cancel()
        self._transport.abort()

    def cancel(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
