"""What a request's arrival may cost: how large its head may be, and how long head and body may take.

uvicorn bounds neither. A client that drips a byte a second into a thousand connections would hold them all for ever,
and one that sends a header without an end would fill the memory (spec/service.md 2.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from core.errors import LargeHeadError, SlowRequestError

BODY_BYTES_PER_SECOND = 1 << 20
"""How fast a body has to come, at least, beyond the seconds that every body has."""


Fields = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class ArrivalLimits:
    """Bytes and fields of a head; seconds for a head, and for a body beside those for its size."""

    head_bytes: int = 32 << 10
    header_fields: int = 100
    head_seconds: float = 10.0
    body_seconds: float = 30.0


class Stage(Enum):
    """What a connection waits for."""

    FIRST_HEAD = "first head"
    HEAD = "head"
    BODY = "body"
    NOTHING = "nothing"


class Arrival:
    """The arrival of requests on one connection. The protocol tells it what its parser sees.

    One timer serves a connection for all of its life. It is not set anew for each request: when it goes off, it looks
    whether what it was set for is still the case. A request that arrives in one piece sets none.
    """

    def __init__(
        self, limits: ArrivalLimits, loop: asyncio.AbstractEventLoop, expired: Callable[[SlowRequestError], None]
    ) -> None:
        self._limits = limits
        self._loop = loop
        self._expired = expired
        self._stage = Stage.FIRST_HEAD
        self._request = 0
        self._watched = (Stage.NOTHING, 0)
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._most_bytes = limits.head_bytes
        self._most_fields = limits.header_fields
        self._unparsed = 0
        self._parsed = 0
        self._fields = 0
        self._head: Fields = ()

    def received(self, byte_count: int) -> None:
        """Bytes came. Raise LargeHeadError if they leave a head open that has had too many."""
        if self._stage is Stage.HEAD or self._stage is Stage.FIRST_HEAD:
            # The parser keeps what belongs to an unfinished field to itself, so that only the bytes can be counted.
            self._unparsed += byte_count
            if self._unparsed > self._most_bytes + byte_count:
                raise self._too_many_bytes()

    def head_begins(self) -> None:
        """The first byte of a head was parsed."""
        self._stage = Stage.HEAD
        self._request += 1
        self._unparsed = self._parsed = self._fields = 0

    def head_grows(self, byte_count: int, field_count: int) -> None:
        """A part of the path or a whole header field was parsed. Raise LargeHeadError if that is too much."""
        self._parsed += byte_count
        self._fields += field_count
        if self._parsed > self._most_bytes:
            raise self._too_many_bytes()
        if self._fields > self._most_fields:
            raise LargeHeadError(f"the head has more than {self._most_fields} header fields")

    def _too_many_bytes(self) -> LargeHeadError:
        return LargeHeadError(
            f"the path, the query and the header fields have more than {self._most_bytes} bytes; "
            "long types go into a JSON body"
        )

    def head_ends(self, fields: Fields) -> None:
        """The head was parsed. Its fields say how long the body is."""
        self._stage = Stage.BODY
        self._head = fields

    def body_ends(self) -> None:
        """The request is complete."""
        self._stage = Stage.NOTHING

    def watch(self) -> None:
        """Give what is waited for its time, unless it has one. To be called at the start and after each read."""
        current = (self._stage, self._request)
        if current == self._watched:
            return
        self._watched = current
        if self._stage is Stage.NOTHING:
            return
        seconds = self._limits.head_seconds
        if self._stage is Stage.BODY:
            seconds = self._limits.body_seconds + _body_bytes(self._head) / BODY_BYTES_PER_SECOND
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


def _body_bytes(fields: Fields) -> int:
    """Return the Content-Length, as far as it is one; what is none is refused by whoever reads the body."""
    for name, value in fields:
        if name == b"content-length" and value.isdigit() and len(value) < 20:
            return int(value)
    return 0
