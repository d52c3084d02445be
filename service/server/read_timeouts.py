"""How long the head and the body of a request may take to arrive, and how large a head may be.

uvicorn bounds neither. A client that drips a byte a second into a thousand connections would hold them all for ever,
and one that sends a header without an end would fill the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from core.errors import LargeHeadError, SlowRequestError

BODY_BYTES_PER_SECOND = 1 << 20
"""How fast a body has to come, at least, beyond the seconds that every body has."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bytes and fields of a head; seconds for a head, and for a body beside those for its size."""

    head_bytes: int = 32 << 10
    header_fields: int = 100
    head_seconds: float = 10.0
    body_seconds: float = 30.0

    @property
    def framing_bytes(self) -> int:
        """How many bytes a head may have as it is sent, with its separators; and whatever else is not a body."""
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
    """What a connection waits for."""

    FIRST_HEAD = "first head"
    HEAD = "head"
    BODY = "body"
    NOTHING = "nothing"


class ReadTimeouts:
    """The arrival of requests on one connection. The protocol tells it what its parser sees.

    One timer serves a connection for all of its life. It is not set anew for each request: when it goes off, it looks
    whether what it was set for is still the case. A request that arrives in one piece sets none.
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
        self._watched = (Stage.NOTHING, 0)
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def head_begins(self) -> None:
        """The first byte of a request came, or of what is taken for one."""
        self.stage = Stage.HEAD
        self._request += 1

    def head_ends(self, body_bytes: int) -> None:
        """The head was parsed. `body_bytes`: the stated length of the body."""
        self.stage = Stage.BODY
        self._body_bytes = body_bytes

    def body_ends(self) -> None:
        """The request is complete."""
        self.stage = Stage.NOTHING

    def watch(self) -> None:
        """Give what is waited for its time, unless it has one. To be called at the start and after each read."""
        current = (self.stage, self._request)
        if current == self._watched:
            return
        self._watched = current
        if self.stage is Stage.NOTHING:
            return
        seconds = self._limits.head_seconds
        if self.stage is Stage.BODY:
            seconds = self._limits.body_seconds + self._body_bytes / BODY_BYTES_PER_SECOND
        self._due = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._due:
            self._set()

    def _set(self) -> None:
        self.stop()
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._watched[0] is Stage.NOTHING:
            return
        if self._loop.time() < self._due:
            self._set()
            return
        part = "body" if self._watched[0] is Stage.BODY else "head"
        self._expired(SlowRequestError(f"the {part} of the request did not arrive in time"))

    def stop(self) -> None:
        """The connection is gone, or will be."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
