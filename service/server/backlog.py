"""What a client has sent and the parser has not seen yet: bounded, held of the memory budget, cut between messages.

HTTP/1.1 answers in order, so a request that arrives before the one ahead of it is answered can only wait. It waits here
as bytes, at most one read beyond the high-water mark, and costs nothing else: no parsing, no task.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl

from core.errors import OverloadedError
from service.runtime.memory_budget import Admission, Reservation


class Backlog(FlowControl):
    """uvicorn's flow control of one connection, with the bytes because of which reading may have to pause."""

    def __init__(self, transport: asyncio.Transport, admission: Admission) -> None:
        super().__init__(transport)
        self._reservation = Reservation(admission)
        self._bytes = b""
        self._at = 0

    def __len__(self) -> int:
        return len(self._bytes) - self._at

    def add(self, data: bytes) -> None:
        """Keep what was read."""
        self._bytes = self._bytes[self._at :] + data if self else data
        self._at = 0

    def take(self, of_body: int, most: int) -> memoryview:
        """Return the next bytes for the parser, none beyond the end of a message.

        `of_body`: how much of a body of stated length is still to come. Any other message ends with an empty line, and
        so does a head; of these at most `most` bytes are returned.
        """
        at = self._at
        end = len(self._bytes)
        if of_body:
            end = min(end, at + of_body)
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

    def settle(self) -> None:
        """Hold memory for what is left, and pause reading if that is much. Raise OverloadedError if there is none."""
        if self._at == len(self._bytes):
            self._bytes, self._at = b"", 0
            if not self._reservation.held:
                return
        more = len(self._bytes) - self._reservation.held
        if more > 0 and not self._reservation.more_at_once(more):
            raise OverloadedError("no memory for pipelined requests")
        if more < 0:
            self._reservation.less(-more)
        if len(self) > HIGH_WATER_LIMIT:
            self.pause_reading()

    def drop(self) -> None:
        """Forget what is left, and read on."""
        self._bytes, self._at = b"", 0
        self.settle()
        self.resume_reading()

    def resume_reading(self) -> None:
        """Read on, unless too much waits already."""
        if self.read_paused and len(self) <= HIGH_WATER_LIMIT:
            super().resume_reading()
