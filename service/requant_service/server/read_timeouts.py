"""Read timeouts of the head and the body of a request, and the limits on the size of a head.

uvicorn has neither. A client that sends a byte a second on a thousand connections would hold them all for ever, and one
that sends a header without an end would fill the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from requant.errors import LargeHeadError, SlowRequestError

BODY_BYTES_PER_SECOND = 1 << 20
"""The least rate at which a body has to be received, beyond the seconds that every body has."""


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
            seconds = self._limits.body_seconds + self._body_bytes / BODY_BYTES_PER_SECOND
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
