"""How replies leave a connection, and how it ends after the last of them.

A client that asks for a large tensor and does not read it would keep its memory for ever. So a reply has as long to
leave as a body has to arrive: some seconds, and one more for each MiB.

A connection is not closed at once (RFC 9112 section 9.6): with bytes of the client unread that would reset it, and
destroy what the client has not read of the replies. A client that sends everything before it reads would never see why
it was refused. So only our side is closed, and what the client sends is dropped until it closes its own side, pauses or
sends too much.
"""

from __future__ import annotations

import asyncio

from service.server.read_timeouts import BODY_BYTES_PER_SECOND

# How much is received and dropped after the last reply, and how long: in all, and without a byte coming.
_LINGER_BYTES = 256 << 20
_LINGER_SECONDS = 10.0
_PAUSE_SECONDS = 0.5
# How `100 Continue` begins, and every other reply before the reply.
_INTERIM = b"HTTP/1.1 1"


class WriteTimeouts(asyncio.Transport):
    """The transport of one connection, as requests see it. The protocol tells it when writing pauses.

    `seconds`: how long a reply may take to leave, beside the time for its size.
    """

    def __init__(self, transport: asyncio.Transport, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._seconds = seconds
        self._loop = loop
        self._reply: object = None
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._head: bytes | None = None
        self._dropped = 0
        self._dropped_before = 0

    def reply_begins(self) -> None:
        """Let the head of a reply wait for the first part of its body, as ASGI asks for: one write instead of two."""
        self._head = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write a part of a reply, if there is still somebody to take it. uvloop raises when there is nobody."""
        head = self._head
        if self._closing or self._transport.is_closing():
            return
        if head is None or (not head and bytes(data[: len(_INTERIM)]) == _INTERIM):
            self._transport.write(data)
        elif not head:
            self._head = bytes(data)
        else:
            self._head = None
            self._transport.writelines([head, data])

    def flush(self) -> None:
        """Write a head that no body follows."""
        head, self._head = self._head, None
        if head and not (self._closing or self._transport.is_closing()):
            self._transport.write(head)

    def is_closing(self) -> bool:
        """Return whether no reply can be written any more."""
        return self._closing or self._transport.is_closing()

    def paused(self, reply: object) -> None:
        """Writing of a reply has paused, because the client does not take what was written."""
        if self._closing:
            return
        if reply is not self._reply:
            self._reply = reply
            self._due = self._loop.time() + self._seconds
        self._due += self._transport.get_write_buffer_size() / BODY_BYTES_PER_SECOND
        self.stop()
        self._timer = self._loop.call_at(self._due, self.abort)

    def resumed(self) -> None:
        """Writing goes on."""
        if not self._closing:
            self.stop()

    def close(self) -> None:
        """End the connection after what was written: close our side, and give the client time to read and to close."""
        if self.is_closing():
            return
        self.flush()
        self._closing = True
        self.stop()
        self._transport.write_eof()
        waiting = self._transport.get_write_buffer_size()
        seconds = self._seconds + waiting / BODY_BYTES_PER_SECOND if waiting else _LINGER_SECONDS
        self._due = self._loop.time() + seconds
        self._timer = self._loop.call_later(_PAUSE_SECONDS, self._look)

    def drop(self, byte_count: int) -> None:
        """Bytes came after the end."""
        self._dropped += byte_count
        if self._dropped > _LINGER_BYTES:
            self.abort()

    def _look(self) -> None:
        """See, after each pause, whether the client still sends or has not taken all."""
        if self._dropped == self._dropped_before and not self._transport.get_write_buffer_size():
            self._transport.close()
        elif self._loop.time() >= self._due:
            self.abort()
        else:
            self._dropped_before = self._dropped
            self._timer = self._loop.call_later(_PAUSE_SECONDS, self._look)

    def abort(self) -> None:
        """Cut the connection."""
        self._closing = True
        self.stop()
        self._transport.abort()

    def stop(self) -> None:
        """Wait for nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
