"""The outermost layers around every request: its context, its memory, the header fields of its response, its metrics.

The lifecycle also decides what happens to a body that is still unread when the response is ready. A refusal often comes
before the body: no such path, a wrong query, a limit. uvicorn then receives what still comes, for as long as it comes,
before it reads the next request. So a response before a long body is the last of its connection
(`requant_service.server.timeouts`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Collection

import numpy as np
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from requant_service.http.responses import common_headers
from requant_service.runtime.logs import log_request
from requant_service.runtime.memory_budget import Reservation
from requant_service.runtime.metrics import Metrics
from requant_service.runtime.request_context import ClientLeftError, RequestContext, begin_request, context_of
from requant_service.runtime.runtime import HealthStatus, Runtime

# A remaining body of at most this many bytes, as its Content-Length says, is left to uvicorn: the connection is kept.
_MAX_UNREAD_BYTES = 64 << 10


class RequestLifecycle:
    """Pure ASGI middleware."""

    def __init__(self, app: ASGIApp, running: Runtime) -> None:
        self._app = app
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with Reservation(self._running.memory_budget) as reservation:
            context = begin_request(scope, reservation)
            messages = _Messages(context, receive, send, closing=self._running.status is HealthStatus.DRAINING)
            try:
                # Exceptions of IEEE 754 are ordinary results here, defined by the profiles.
                with np.errstate(all="ignore"):
                    await self._app(scope, messages.receive, messages.send)
            except ClientLeftError:
                pass  # there is no one to respond to


class _Messages:
    """The `receive` and `send` of one request, around those of the server.

    `closing`: whether this is to be the last request of its connection, because the service is about to stop.
    """

    def __init__(self, context: RequestContext, receive: Receive, send: Send, *, closing: bool) -> None:
        self._context = context
        self._receive = receive
        self._send = send
        self._closing = closing
        fields = context.headers
        # Whether the client waits for `100 Continue`: then the body may never follow.
        self._waits = b"expect" in fields
        self._declared = None if b"transfer-encoding" in fields else int(fields.get(b"content-length", 0))
        self._ended = self._declared == 0

    async def receive(self) -> Message:
        """Receive the next message, and count its bytes."""
        message = await self._receive()
        self._context.bytes_received += len(message.get("body", b""))
        if not message.get("more_body", False):
            self._ended = True
            self._context.received = self._context.elapsed
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message; complete it if it is the head."""
        if message["type"] == "http.response.start":
            self._context.status = message["status"]
            message = {**message, "headers": self._completed(message["headers"])}
        else:
            self._context.bytes_sent += len(message.get("body", b""))
        return self._send(message)

    def _completed(self, fields: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Add the common header fields that the response does not have itself, and whether the connection closes."""
        present = dict(fields)
        headers = [*fields, *[pair for pair in common_headers(self._context) if pair[0] not in present]]
        headers.append((b"server-timing", self._context.server_timing()))
        if self._closing or (not self._ended and self._is_long()):
            headers = [*(pair for pair in headers if pair[0] != b"connection"), (b"connection", b"close")]
        return headers

    def _is_long(self) -> bool:
        """Return whether more may come than is left to uvicorn."""
        return (
            self._waits or self._declared is None or self._declared - self._context.bytes_received > _MAX_UNREAD_BYTES
        )


_log = logging.getLogger("requant.requests")

UNMATCHED = "unmatched"
"""The route of requests that no route takes."""

PROBES = frozenset({"/healthz", "/v2/health/live", "/v2/health/ready"})
"""The routes of probes, which come without a token. They say nothing but whether work is taken."""

MONITORING = PROBES | {"/metrics"}
"""The routes of probes and scrapers, which are neither logged nor traced."""


def route_of(scope: Scope, fixed: Collection[str]) -> str:
    """Return the template of the route that served a request: one of a closed set, whatever the path was."""
    path: str = scope["path"]
    if path in fixed:
        return path
    template: str | None = getattr(scope.get("route"), "path", None)
    return UNMATCHED if template is None else template


class Instrumentation:
    """Pure ASGI middleware inside of the request lifecycle. `fixed` are the paths of routes without parameters."""

    def __init__(self, app: ASGIApp, metrics: Metrics, fixed: Collection[str], *, log: bool) -> None:
        self.app = app
        self._metrics = metrics
        self._fixed = frozenset(fixed)
        self._logs = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and count it when it has ended."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self._metrics.begin()
        try:
            await self.app(scope, receive, send)
        finally:
            route = route_of(scope, self._fixed)
            end_request(
                self._metrics, context_of(scope), route, scope["method"], log=self._logs and route not in MONITORING
            )


def end_request(metrics: Metrics, context: RequestContext, route: str, method: str, *, log: bool) -> None:
    """Count a request that has ended, and log it if that is asked for."""
    seconds = context.elapsed
    metrics.end(route, method, context.status, seconds, context.bytes_received, context.bytes_sent)
    if log:
        log_request(
            _log,
            method=method,
            route=route,
            status=context.status,
            seconds=round(seconds, 6),
            received=context.bytes_received,
            sent=context.bytes_sent,
        )
