"""The outermost layer around every request: its context, its memory, the header fields of its response, its metrics.

It also decides what happens to a body that is still unread when the response is ready. A refusal often comes
before the body: no such path, a wrong query, a limit. uvicorn then receives what still comes, for as long as it comes,
before it reads the next request. So a response before a long body is the last of its connection
(`requant_service.server.timeouts`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Collection
from operator import itemgetter
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from requant_service.http.responses import common_headers
from requant_service.runtime.logs import log_request
from requant_service.runtime.memory_budget import Reservation
from requant_service.runtime.metrics import Metrics
from requant_service.runtime.request_context import (
    ClientLeftError,
    RequestContext,
    begin_request,
    ignore_float_exceptions,
)
from requant_service.runtime.runtime import RUNTIME_KEY, HealthStatus, Runtime

# A remaining body of at most this many bytes, as its Content-Length says, is left to uvicorn: the connection is kept.
_MAX_UNREAD_BYTES = 64 << 10


_log = logging.getLogger("requant.requests")

UNMATCHED = "unmatched"
"""The route of requests that no route takes."""

PROBES = frozenset({"/healthz", "/v2/health/live", "/v2/health/ready"})
"""The routes of probes, which come without a token. They say nothing but whether work is taken."""

MONITORING = PROBES | {"/metrics"}
"""The routes of probes and scrapers, which are neither logged nor traced."""


class RequestLifecycle:
    """Pure ASGI middleware. `fixed` are the paths of routes without parameters. `log`: a line for each request."""

    def __init__(self, app: ASGIApp, running: Runtime, fixed: Collection[str], *, log: bool) -> None:
        self._app = app
        self._running = running
        self._fixed = frozenset(fixed)
        self._logs = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, and count it when it has ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        running = scope[RUNTIME_KEY] = self._running
        ignore_float_exceptions()
        reservation = Reservation(running.memory_budget)
        context = begin_request(scope, reservation)
        messages = _Messages(context, receive, send, closing=running.status is HealthStatus.DRAINING)
        running.metrics.begin()
        try:
            await self._app(scope, messages.receive, messages.send)
        except ClientLeftError:
            pass  # there is no one to respond to
        finally:
            reservation.end()
            route = route_of(scope, self._fixed)
            log = self._logs and route not in MONITORING
            end_request(running.metrics, context, route, scope["method"], log=log)


def route_of(scope: Scope, fixed: Collection[str]) -> str:
    """Return the template of the route that served a request: one of a closed set, whatever the path was."""
    path: str = scope["path"]
    if path in fixed:
        return path
    template: str | None = getattr(scope.get("route"), "path", None)
    return UNMATCHED if template is None else template


_NAME = itemgetter(0)
_COMMON_NAMES = frozenset(name for name, _ in common_headers(RequestContext()))


class _Messages:
    """The `receive` and `send` of one request, around those of the server.

    `closing`: whether this is to be the last request of its connection, because the service is about to stop.
    """

    __slots__ = ("_closing", "_context", "_declared", "_ended", "_receive", "_send", "_waits")

    def __init__(self, context: RequestContext, receive: Receive, send: Send, *, closing: bool) -> None:
        self._context = context
        self._receive = receive
        self._send = send
        self._closing = closing
        fields = context.headers
        # Whether the client waits for `100 Continue`: then the body may never follow.
        self._waits = b"expect" in fields
        self._declared = fields.body_bytes
        self._ended = self._declared == 0

    async def receive(self) -> Message:
        """Receive the next message, and count its bytes."""
        message = await self._receive()
        context = self._context
        context.bytes_received += len(message.get("body", b""))
        if not message.get("more_body", False):
            self._ended = True
            context.received = perf_counter() - context.began
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
        common = common_headers(self._context)
        if not _COMMON_NAMES.isdisjoint(map(_NAME, fields)):
            present = dict(fields)
            common = tuple(pair for pair in common if pair[0] not in present)
        headers = [*fields, *common, (b"server-timing", self._context.server_timing())]
        if self._closing or (not self._ended and self._is_long()):
            headers = [*(pair for pair in headers if pair[0] != b"connection"), (b"connection", b"close")]
        return headers

    def _is_long(self) -> bool:
        """Return whether more may come than is left to uvicorn."""
        return (
            self._waits or self._declared is None or self._declared - self._context.bytes_received > _MAX_UNREAD_BYTES
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
