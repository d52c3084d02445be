"""Write timeouts of responses, and the lingering close of a connection after the last of them.

A client that asks for a large tensor and does not read it would keep its memory in use for ever. So the write timeout
of a response is the read timeout of a body of its size: some seconds, and one more for each MiB.

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
from collections.abc import Iterable

from requant_service.server.read_timeouts import BODY_BYTES_PER_SECOND

# How much is received and discarded after the last response, and for how long: in all, and without a byte received.
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
        if not self.is_closing():
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
        self._due += self._transport.get_write_buffer_size() / BODY_BYTES_PER_SECOND
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
        seconds = _LINGER_SECONDS if self._is_sent() else self._seconds + waiting / BODY_BYTES_PER_SECOND
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
                # It waits for the client to say that it closes too. Many never do.
                self._timer = self._loop.call_later(_PAUSE_SECONDS, self._transport.abort)
        elif self._loop.time() >= self._due:
            self.abort()
        else:
            self._discarded_before = self._discarded
            self._timer = self._loop.call_later(_PAUSE_SECONDS, self._on_timer)

    def _is_sent(self) -> bool:
        """Return whether all that was written was sent; with TLS, whether the client's system has received it.

        What TLS has encrypted waits in a buffer below, which only the system's own send queue tells of: that is never
        empty for long while something waits to get there.
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
