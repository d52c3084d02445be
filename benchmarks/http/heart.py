"""`python -m benchmarks.http.heart PORT [cpu]`: our service with a heart that beats on its event loop.

A beat is due every millisecond. GET /heart tells in milliseconds how late the latest beat was since the last time
that it was asked: so long nothing else was served. With `cpu` the clock is the loop's own CPU time, which other
processes of the machine do not lengthen.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from time import perf_counter, thread_time

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from requant_service.app import create_app
from requant_service.runtime.settings import Settings
from requant_service.server.http1_protocol import http_protocol
from requant_service.server.malloc import keep_memory
from requant_service.server.timeouts import RequestLimits

# As fine as the loop's timers are.
_PERIOD = 1e-3


class Heart:
    """The application with a heart."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = perf_counter) -> None:
        self._app = app
        self._clock = clock
        self._latest = 0.0
        self._due = 0.0

    def _beat(self) -> None:
        now = self._clock()
        self._latest = max(self._latest, now - self._due)
        self._due = now + _PERIOD
        asyncio.get_running_loop().call_later(_PERIOD, self._beat)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the lifespan."""
        if scope["type"] == "lifespan":
            self._due = self._clock()
            self._beat()
        if scope.get("path") != "/heart":
            await self._app(scope, receive, send)
            return
        text, self._latest = b"%.3f" % (1e3 * self._latest), 0.0
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})


if __name__ == "__main__":
    gc.disable()  # as `requant_service.main`, until the service is ready
    keep_memory()
    app = create_app(Settings())
    uvicorn.run(
        Heart(app, thread_time if sys.argv[2:] == ["cpu"] else perf_counter),
        port=int(sys.argv[1]),
        http=http_protocol(RequestLimits(), budget=app.state.runtime.memory_budget),
        loop="uvloop",
        ws="none",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_level="warning",
    )
