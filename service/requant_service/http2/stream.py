"""One stream of a connection: its flow-control windows, and what is left to send."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

Buffer = bytes | bytearray | memoryview

INITIAL_WINDOW = 1 << 14
"""How much of a stream is received before anything was granted for it, unless its connection offers more."""


class Connection(Protocol):
    """What a stream needs of its connection."""

    def grant(self, stream: Stream, byte_count: int) -> None:
        """Let the client send `byte_count` bytes more."""

    def outstanding(self, stream: Stream) -> int:
        """Return how many bytes of a stream may still come."""

    def widen_windows(self, byte_count: int) -> None:
        """Let the client send at least `byte_count` bytes of each stream before anything is granted for it."""

    def narrow_windows(self) -> None:
        """Let the client send no more of new streams than at first."""

    def respond(self, stream: Stream, head: bytes, parts: Iterable[Buffer] = (), trailers: bytes | None = None) -> None:
        """Send header fields, data, and the trailers that end the stream."""

    def end_with(self, stream: Stream, block: bytes) -> None:
        """Answer with header fields alone, which end the stream."""

    def reset(self, stream: Stream, code: int) -> None:
        """End a stream without a response."""


class Stream:
    """One stream. A subclass overrides the events.

    `window`: how much the client may still send. `send_window`: how much we may. `ended`: whether the client has sent
    all. `closed`: whether nothing of the stream is sent or received any more. `due`: until when the client has to take
    what is being sent. `is_wanted`: whether its connection should stay because of it.
    """

    __slots__ = (
        "closed",
        "connection",
        "due",
        "ended",
        "head_sent",
        "is_wanted",
        "number",
        "out",
        "send_window",
        "trailers",
        "window",
    )

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.window = INITIAL_WINDOW
        self.send_window = 0
        self.ended = False
        self.closed = False
        self.head_sent = False
        self.is_wanted = True
        self.out: deque[memoryview] = deque()
        self.trailers: bytes | None = None
        self.due = 0.0

    def begin(self) -> None:
        """The stream is open."""

    def room(self, byte_count: int) -> memoryview | None:
        """Return where the next bytes may be received directly, at most `byte_count`; None if they may not."""
        return None

    def filled(self, byte_count: int) -> None:
        """Take bytes that were received into `room`."""

    def received(self, data: memoryview) -> None:
        """Take data. It is valid during the call only."""

    def half_closed(self) -> None:
        """The client has sent all."""

    def left(self) -> None:
        """The client has reset the stream, or its connection is lost."""

    def written(self) -> None:
        """What was to be sent until now was handed to the connection; the stream may send on."""

    def sent(self) -> None:
        """All of the response has left this process."""

    def tick(self, now: float) -> None:
        """Check the timeout. Called twice a second."""
