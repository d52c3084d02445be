"""Metrics and the access log: each request is counted, timed, and logged in one line."""

from __future__ import annotations

import logging
from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from requant_service.runtime.logs import log_request
from requant_service.runtime.metrics import Metrics
from requant_service.runtime.request_context import RequestContext, context_of

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
