"""Bytes that were received and not parsed yet: bounded, counted in the memory budget, cut between messages.

HTTP/1.1 answers in order, so a request that is sent before the one ahead of it is answered can only wait. It waits here
as bytes, at most one read beyond the high-water mark, and costs nothing else: no parsing, no task.
"""

from __future__ import annotations

import asyncio

from requant.errors import OverloadedError
from requant_service.runtime.memory_budget import MemoryBudget, Reservation

HIGH_WATER_BYTES = 64 << 10
"""Reading pauses when more is kept than that."""


class PendingRequests:
    """The flow control of one connection, with the bytes because of which reading may have to pause."""

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

    def take(self, body_bytes: int, most: int) -> memoryview:
        """Return the next bytes for the parser, none beyond the end of a message.

        `body_bytes`: how much of a body of stated length is still to come. Any other message ends with an empty line,
        and so does a head; of these at most `most` bytes are returned.
        """
        at = self._at
        end = len(self._bytes)
        if body_bytes:
            end = min(end, at + body_bytes)
        elif (line_end := self._bytes.find(b"\n", at, at + 3)) >= 0:
            # Perhaps the rest of an empty line that began in the previous piece.
            end = line_end + 1
        else:
            end = min(end, at + most)
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
        """Forget what is left, and read on."""
        self._bytes, self._at = b"", 0
        self.reserve()
        self.resume_reading()

    def pause_reading(self) -> None:
        """Read no more from the socket."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless too much is pending already."""
        if self.read_paused and len(self) <= HIGH_WATER_BYTES:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Let `drain` wait: too much was written that the client has not read."""
        self.write_paused = True
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let writing go on."""
        self.write_paused = False
        self._writable.set()

    async def drain(self) -> None:
        """Wait until the client has read enough of what was written."""
        await self._writable.wait()
