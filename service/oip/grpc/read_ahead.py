"""Places for messages that grpcio receives before it calls their handler, which is faster than a handler that reads.

A place is taken when a call begins, and given back when its handler is called. A call that ends before its message is
there never gets to its handler, and grpcio tells nobody. Such a place is free again when the connection of the call is
closed for certain: so that a client that leaves calls unfinished slows others down, but takes no more memory.
"""

from __future__ import annotations

from collections import deque
from time import monotonic


class ReadAhead:
    """A number of places, each taken for at most so many seconds."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._taken: deque[float] = deque()

    def take(self) -> bool:
        """Take a place. Return whether there was one."""
        now = monotonic()
        while self._taken and now - self._taken[0] > self._seconds:
            self._taken.popleft()
        if len(self._taken) >= self._most:
            return False
        self._taken.append(now)
        return True

    def give_back(self) -> None:
        """Give a place back: the one that was taken last, since the first are those of calls that were left."""
        if self._taken:
            self._taken.pop()
