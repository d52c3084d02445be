"""Who may come in: requests reserve the memory that they will need, and wait a moment or are refused when it is gone.

Counting connections says nothing here, since one request may need a thousand times what another does. So there is a
budget of bytes. A request that does not fit waits in line, first come first served and not for long; when the line is
full or the wait is over, it is refused with 503 and told to come again, which costs a loaded service next to nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from core.errors import LimitError, OverloadedError


class Admission:
    """A budget of bytes. All methods are called on the event loop, so nothing here is locked."""

    def __init__(self, budget: int, longest_line: int, patience_seconds: float) -> None:
        self.budget = budget
        self.reserved = 0
        self._longest_line = longest_line
        self._patience_seconds = patience_seconds
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """How many requests wait in line."""
        return len(self._line)

    @asynccontextmanager
    async def reserve(self, byte_count: int) -> AsyncIterator[None]:
        """Hold `byte_count` bytes of the budget.

        Raise LimitError if the whole budget is less than that, OverloadedError if it does not come free in time.
        """
        if byte_count > self.budget:
            detail = f"the request needs {byte_count} bytes of memory; the service may use {self.budget} for all"
            raise LimitError(detail, limit=self.budget)
        await self._enter(byte_count)
        try:
            yield
        finally:
            self.reserved -= byte_count
            self._admit()

    async def _enter(self, byte_count: int) -> None:
        if not self._line and self.reserved + byte_count <= self.budget:
            self.reserved += byte_count
            return
        if len(self._line) >= self._longest_line:
            raise OverloadedError(f"{len(self._line)} requests wait for memory already")
        place = (byte_count, asyncio.get_running_loop().create_future())
        self._line.append(place)
        try:
            async with asyncio.timeout(self._patience_seconds):
                await place[1]
        except BaseException as error:
            self._leave(place)
            if isinstance(error, TimeoutError):
                raise OverloadedError(
                    f"no memory came free within {self._patience_seconds} s; {self.reserved} bytes are in use"
                ) from None
            raise

    def _leave(self, place: tuple[int, asyncio.Future[None]]) -> None:
        """Give up a place in line, or what was granted in the very moment in which it was given up."""
        byte_count, granted = place
        if place in self._line:
            self._line.remove(place)
        elif granted.done() and not granted.cancelled():
            self.reserved -= byte_count
        self._admit()

    def _admit(self) -> None:
        """Let in whoever is first in line, as long as there is room."""
        while self._line and self.reserved + self._line[0][0] <= self.budget:
            byte_count, granted = self._line.popleft()
            if not granted.done():
                self.reserved += byte_count
                granted.set_result(None)
