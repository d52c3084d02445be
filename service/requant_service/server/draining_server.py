"""uvicorn's server with a drain period before it stops.

A balancer learns from the probes that this replica is not ready any more, and that takes it some seconds. Until then it
sends requests, which are answered like all others, each the last of its connection. Then nothing more is accepted, what
is under way ends, and the process with it. An interrupt (Ctrl-C), or a second SIGTERM, stops without that pause, and so
does a service that was not ready: no balancer sends it anything.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from types import FrameType

import uvicorn

from requant_service.runtime.runtime import HealthStatus, Runtime
from requant_service.server.listening_server import ListeningServer
from requant_service.server.malloc import KeptMemory
from requant_service.server.monitoring_server import MonitoringServer

_log = logging.getLogger("uvicorn.error")

# What the rest takes, when requests took all of their time.
_LAST_SECONDS = 2.0
# What clients that have connected at the very end have for the TLS handshake.
_HANDSHAKE_SECONDS = 1.0


class DrainingServer(ListeningServer):
    """A server that drains before it stops.

    On a request to stop it calls `end_within` with the longest time that it may take, in seconds. `monitoring` is the
    server of the metrics port, which begins before this one and ends after it.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        running: Runtime,
        end_within: Callable[[float], None] = lambda _: None,
        monitoring: MonitoringServer | None = None,
    ) -> None:
        super().__init__(config, running.settings.head_seconds)
        self._running = running
        self._end_within = end_within
        self._monitoring = monitoring
        self._stops_at: float | None = None
        self._kept_memory = KeptMemory(running.memory_budget)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, on the metrics port first: probes see how the rest starts."""
        if self._monitoring is not None:
            await self._monitoring.startup()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal: drain first, the first time."""
        settings = self._running.settings
        pause = settings.drain_seconds if self._running.status is HealthStatus.READY else 0.0
        if sig == signal.SIGTERM and self._stops_at is None and pause and self.started:
            self._end_within(pause + settings.shutdown_seconds + _LAST_SECONDS)
            self._running.drain()
            self._stops_at = monotonic() + pause
            _log.info("Draining: requests are served for another %g seconds.", pause)
        else:
            self._end_within(settings.shutdown_seconds + _LAST_SECONDS)
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """See, ten times a second, whether the time has come."""
        if self._monitoring is not None:
            await self._monitoring.on_tick(counter)  # sets the date that its responses have
        self._kept_memory.tick()
        if self._stops_at is not None and monotonic() >= self._stops_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and then all else, but first take the connections that the system has accepted already."""
        self._running.closing.set()
        for server in self.servers:
            kept = [socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets]
            server.close()
            for listening in kept:
                await self._take_all(listening)
        await super().shutdown(sockets)
        if self._monitoring is not None:
            await self._monitoring.shutdown()

    async def _take_all(self, listening: socket.socket) -> None:
        """Serve the connections that wait, and close: closing alone would reset them."""
        listening.setblocking(False)
        taken = []
        with listening, suppress(BlockingIOError):
            while True:
                taken.append(listening.accept()[0])
        # A client that does not go on with its TLS handshake keeps nobody waiting.
        beginning = asyncio.gather(*map(self.serve_accepted, taken), return_exceptions=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(beginning, _HANDSHAKE_SECONDS)
