"""uvicorn's cycle of one request and its reply, with a shorter way for the usual reply.

That is one of a stated length, on a connection that stays open, to a client that takes it as fast as it comes. Its
bytes, and what the server does after it, are those of uvicorn's own `send`, to which all other replies are left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from service.at_once import AT_ONCE

# They are about the connection, or about a body of no stated length.
_UNUSUAL = frozenset({b"connection", b"transfer-encoding"})
_PLAIN = b"\t\r\n" + bytes(range(32, 127)) + bytes(range(128, 256))


class Cycle(RequestResponseCycle):
    """A request and its reply."""

    body: bytes | bytearray  # type: ignore[assignment]  # receive() makes bytes of it

    def send(self, message: Any) -> Awaitable[None]:  # type: ignore[override]  # it is awaited all the same
        """Take a message of the reply."""
        if not (self.flow.write_paused or self.disconnected):
            if not self.response_started:
                if self._began(message):
                    return AT_ONCE
            elif self.chunked_encoding is False and self._went_on(message):
                return AT_ONCE
        return super().send(message)

    def _began(self, message: Any) -> bool:
        """Write the head of the reply if it is a usual one. Return whether it was."""
        if not self.keep_alive or self.scope["method"] == "HEAD" or message["type"] != "http.response.start":
            return False
        found = _head_text(message["headers"])
        if found is None:
            return False
        text, self.expected_content_length = found
        self.chunked_encoding = False
        self.response_started = True
        self.waiting_for_100_continue = False
        self.transport.write(STATUS_LINE[message["status"]] + text)
        return True

    def _went_on(self, message: Any) -> bool:
        """Write a part of the reply's body, and see to its end. Return whether it fits the length that was stated."""
        body, more = message.get("body", b""), message.get("more_body", False)
        left = self.expected_content_length - len(body)
        if self.response_complete or left < 0 or not (more or left == 0) or self.scope["method"] == "HEAD":
            return False
        self.expected_content_length = left
        self.transport.write(body)
        if not more:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()
        return True


def _head_text(headers: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, int] | None:
    """Return the fields of a head as they are written, and the length of the body, if nothing in it is unusual."""
    fields = dict(headers)
    if b"content-length" not in fields or not _UNUSUAL.isdisjoint(fields):
        return None
    lines = [b"%b: %b\r\n" % field for field in headers]
    text = b"".join(lines)
    # A value with a line break or another control character is left to uvicorn, which refuses it. Names are ours.
    if text.count(b"\n") != len(lines) or text.count(b"\r") != len(lines) or text.translate(None, _PLAIN):
        return None
    return text + b"\r\n", int(fields[b"content-length"])
