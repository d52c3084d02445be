"""One request and its reply, as they pass between the server and the application.

Each reply carries the request's id and the two headers that keep browsers and caches from guessing.

And something has to become of a body that nobody read when the reply is ready. A refusal often comes before the body:
no such path, a wrong query, a limit. uvicorn then takes in whatever still comes, for as long as it comes, before it
reads the next request. So a reply before a long body is the last of its connection (`service.server.write_timeouts`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable

from starlette.types import Message, Receive, Scope, Send

from service.http.header_fields import header_fields
from service.runtime.request_context import HEADER, begin_request

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_RANDOM_BYTES = 16
_SAME_ON_ALL = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))

# A rest of at most this many bytes, stated by the client, is left to uvicorn: the connection stays usable.
_SMALL_REST = 64 << 10


def request_id(scope: Scope) -> str:
    """Return the id of the request: the client's own `X-Request-Id` when it is a plain short one, else a new one."""
    state = scope.setdefault("state", {})
    found: str | None = state.get("request_id")
    if found is None:
        given = header_fields(scope).get(b"x-request-id", b"")
        found = given.decode("ascii") if _REQUEST_ID.fullmatch(given) else new_request_id()
        state["request_id"] = found
    return found


def new_request_id() -> str:
    """Return an id that no other request has: 32 random hexadecimal digits."""
    return os.urandom(_RANDOM_BYTES).hex()


def common_headers(scope: Scope) -> dict[str, str]:
    """Return the headers that belong on every reply to this request."""
    return {name.decode(): value.decode() for name, value in _common_fields(scope)}


def _common_fields(scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
    return (b"x-request-id", request_id(scope).encode()), *_SAME_ON_ALL


class Exchange:
    """The `receive` and `send` that an application gets for one request, around those of the server.

    `closing`: whether this is to be the last request of its connection, because the service is about to stop.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, closing: bool = False) -> None:
        self._course = begin_request(scope)
        self._scope = scope
        self._receive = receive
        self._send = send
        self._closing = closing
        self._received = 0
        fields = header_fields(scope)
        # Whether the client waits to be told to go on: then nobody knows if the body will follow.
        self._waits = b"expect" in fields
        self._declared = None if b"transfer-encoding" in fields else int(fields.get(b"content-length", 0))
        self._ended = self._declared == 0

    async def receive(self) -> Message:
        """Receive the next message, and count what it brings."""
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if not message.get("more_body", False):
            self._ended = True
            self._course.received = self._course.elapsed
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message: a head with what belongs on it."""
        return self._send(self._completed(message) if message["type"] == "http.response.start" else message)

    def _completed(self, head: Message) -> Message:
        """Add the common headers, unless the reply has its own, and say if the connection will be closed."""
        given = head["headers"]
        present = dict(given)
        headers = [*given, *[pair for pair in _common_fields(self._scope) if pair[0] not in present]]
        headers.append((HEADER, self._course.server_timing()))
        if self._closing or (not self._ended and self._is_long()):
            headers = [*(pair for pair in headers if pair[0] != b"connection"), (b"connection", b"close")]
        return {**head, "headers": headers}

    def _is_long(self) -> bool:
        """Return whether more may come than is left to uvicorn."""
        return self._waits or self._declared is None or self._declared - self._received > _SMALL_REST
