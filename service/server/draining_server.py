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

from service.runtime.runtime import HealthStatus, Runtime

_log = logging.getLogger("uvicorn.error")

# What the rest takes, when requests took all of their time.
_LAST_SECONDS = 2.0


class DrainingServer(uvicorn.Server):
    """A server that drains before it stops.

    On a request to stop it calls `end_within` with the longest time that it may take, in seconds.
    """

    def __init__(
        self, config: uvicorn.Config, running: Runtime, end_within: Callable[[float], None] = lambda _: None
    ) -> None:
        super().__init__(config)
        self._running = running
        self._end_within = end_within
        self._stops_at: float | None = None

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

    async def _take_all(self, listening: socket.socket) -> None:
        """Serve the connections that wait, and close: closing alone would reset them."""
        listening.setblocking(False)
        taken = []
        with listening, suppress(BlockingIOError):
            while True:
                taken.append(listening.accept()[0])
        loop = asyncio.get_running_loop()
        for connection in taken:
            await loop.connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn itself does
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made
