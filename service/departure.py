"""How long a reply may take to leave: like a body, some seconds and one more for each MiB.

A client that asks for a large tensor and does not read it would keep its memory for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from service.arrival import BODY_BYTES_PER_SECOND


class Departure:
    """The replies of one connection, when they do not leave at once. The protocol tells it when writing pauses."""

    def __init__(self, seconds: float, loop: asyncio.AbstractEventLoop, expired: Callable[[], None]) -> None:
        self._seconds = seconds
        self._loop = loop
        self._expired = expired
        self._reply: object = None
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def paused(self, reply: object, waiting_bytes: int) -> None:
        """Writing of a reply has paused, with this many bytes that the client has not taken."""
        if reply is not self._reply:
            self._reply = reply
            self._due = self._loop.time() + self._seconds
        self._due += waiting_bytes / BODY_BYTES_PER_SECOND
        self.stop()
        self._timer = self._loop.call_at(self._due, self._expired)

    def stop(self) -> None:
        """Writing goes on, or the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
