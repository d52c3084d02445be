"""Sees every request from its head to the end of its reply: counts it, times it, and logs one line about it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.header_fields import header_fields
from service.middleware.request_lifecycle import request_id
from service.runtime.logs import log_request, request_of_log, trace_of_log
from service.runtime.metrics import Metrics

_log = logging.getLogger("requant.requests")

UNMATCHED = "unmatched"
"""The route of requests that no route takes."""

_TRACE_PARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")

QUIET = frozenset({"/healthz", "/v2/health/live", "/v2/health/ready", "/metrics"})
"""The routes of probes, of which no log and no trace tells."""


def route_of(scope: Scope, fixed: Collection[str]) -> str:
    """Return the template of the route that served a request: one of a closed set, whatever the path was."""
    path: str = scope["path"]
    if path in fixed:
        return path
    template: str | None = getattr(scope.get("route"), "path", None)
    return UNMATCHED if template is None else template


def trace_id(scope: Scope) -> str:
    """Return the id of the trace that the field `traceparent` names, or nothing."""
    given = header_fields(scope).get(b"traceparent")
    found = None if given is None else _TRACE_PARENT.fullmatch(given)
    return "" if found is None else found[1].decode("ascii")


class Instrumentation:
    """Pure ASGI middleware. `fixed` are the paths of the routes that have no parameters."""

    def __init__(self, app: ASGIApp, metrics: Metrics, fixed: Collection[str], *, log: bool) -> None:
        self.app = app
        self._metrics = metrics
        self._fixed = frozenset(fixed)
        self._logs = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything through, and see what there is to see."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        status = received = sent = 0

        async def counted_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        def counted_send(message: Message) -> Awaitable[None]:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
            return send(message)

        self._metrics.begin()
        name = request_of_log.set(request_id(scope))
        trace = trace_of_log.set(trace_id(scope))
        try:
            await self.app(scope, counted_receive, counted_send)
        finally:
            seconds = time.perf_counter() - began
            route = route_of(scope, self._fixed)
            self._metrics.end(route, scope["method"], status, seconds, received, sent)
            if self._logs and route not in QUIET:
                log_request(
                    _log,
                    method=scope["method"],
                    route=route,
                    status=status,
                    seconds=round(seconds, 6),
                    received=received,
                    sent=sent,
                )
            request_of_log.reset(name)
            trace_of_log.reset(trace)
