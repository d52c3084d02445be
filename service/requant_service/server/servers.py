"""uvicorn's server on sockets of our own: the main server, and that of the metrics port.

uvicorn sets no limit on the time of a TLS handshake, removes no unix socket, and stops without a drain period. In a
service of several worker processes the servers of a worker do not listen: the supervisor hands them connections.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from requant_service.runtime.listening import BACKLOG, CannotListenError, UnixSocket, bound_sockets
from requant_service.runtime.runtime import HealthStatus, Runtime
from requant_service.runtime.shared_numbers import CountedConnections
from requant_service.server.http1_protocol import http_protocol
from requant_service.server.malloc import KeptMemory
from requant_service.server.timeouts import RequestLimits

_log = logging.getLogger("uvicorn.error")


class ListeningServer(uvicorn.Server):
    """A server that listens where its configuration says: on `uds`, or on `host` and `port`.

    `handshake_seconds`: how long a TLS handshake may take. `port_setting`: what the port is called in the settings.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        running: Runtime,
        handshake_seconds: float = 10.0,
        port_setting: str = "port",
    ) -> None:
        super().__init__(config)
        self.running = running
        self.server_state.connections = CountedConnections(running.numbers)
        self._port_setting = port_setting
        self._handshake_seconds = handshake_seconds if config.is_ssl else None
        self._unix_socket: UnixSocket | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and listen. End the process if that is not possible, as uvicorn does."""
        await super().startup(sockets=[])
        if self.running.numbers.are_shared:
            return
        try:
            sockets = self.bind()
        except CannotListenError as error:
            _log.error("%s", error)
            await self.lifespan.shutdown()
            sys.exit(STARTUP_FAILURE)
        self.servers = [await self._listen(each) for each in sockets]
        _log.info("Listening on %s", self.address)

    @property
    def address(self) -> str:
        """Where it listens, as a URL or a path."""
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return self.config.uds or f"http{'s' if self.config.is_ssl else ''}://{host}:{self.config.port}"

    def bind(self) -> list[socket.socket]:
        """Return sockets that are bound. Raise CannotListenError."""
        try:
            if self.config.uds is None:
                return bound_sockets(self.config.host, self.config.port)
            self._unix_socket = UnixSocket(Path(self.config.uds))
        except OSError as error:
            setting = self._port_setting if self.config.uds is None else "uds"
            raise CannotListenError(setting, self.address, error) from None
        return [self._unix_socket.socket]

    async def _listen(self, bound: socket.socket) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        if self._unix_socket is not None:
            return await loop.create_unix_server(self._protocol, sock=bound, backlog=BACKLOG)
        return await loop.create_server(
            self._protocol,
            sock=bound,
            backlog=BACKLOG,
            ssl=self.config.ssl,
            ssl_handshake_timeout=self._handshake_seconds,
        )

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn itself does
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    async def serve_accepted(self, connection: socket.socket) -> None:
        """Serve a connection that was accepted elsewhere. Return when its TLS handshake has ended, if it has one."""
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(
            self._protocol, connection, ssl=self.config.ssl, ssl_handshake_timeout=self._handshake_seconds
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and then all else."""
        self.unlink()
        await super().shutdown(sockets)

    def unlink(self) -> None:
        """Remove the file of the unix socket, if there is one."""
        if self._unix_socket is not None:
            self._unix_socket.unlink()


# Probes and scrapers send small requests, fast.
_LIMITS = RequestLimits(head_bytes=8 << 10, header_fields=50, head_seconds=5.0, body_seconds=5.0)
# How long a scrape may still take when all else has ended.
_LAST_SCRAPE_SECONDS = 1


class MonitoringServer(ListeningServer):
    """The server of the metrics port, on the event loop of the main one and without a lifespan of its own.

    It serves while the main one does, drains, and waits for its last requests, so that probes and scrapes see all of
    it. `options`: those of `uvicorn.Config` that it shares with the main one.
    """

    def __init__(self, app: ASGIApp, running: Runtime, port: int, **options: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=running.settings.host,
                port=port,
                http=http_protocol(_LIMITS),
                lifespan="off",
                timeout_graceful_shutdown=_LAST_SCRAPE_SECONDS,
                **options,
            ),
            running,
            port_setting="metrics_port",
        )
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)


# For the rest of the shutdown, after requests have used all of their time.
_LAST_SECONDS = 2.0
# For the TLS handshakes of the last connections.
_HANDSHAKE_SECONDS = 1.0


class DrainingServer(ListeningServer):
    """The main server, which drains before it stops.

    A balancer learns from the probes that this replica is not ready any more, and that takes it some seconds. Until
    then it sends requests, which are answered like all others, each the last of its connection. Then nothing more is
    accepted, what is under way ends, and the process with it. An interrupt (Ctrl-C), or a second SIGTERM, stops without
    that pause, and so does a service that was not ready: no balancer sends it anything.

    On a request to stop it calls `end_within` with the longest time that it may take, in seconds. `monitoring` is the
    server of the metrics port, which begins before this one and ends after it.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        running: Runtime,
        monitoring: MonitoringServer | None = None,
        end_within: Callable[[float], None] = lambda _: None,
    ) -> None:
        super().__init__(config, running, running.settings.head_seconds)
        self._end_within = end_within
        self.monitoring = monitoring
        self._stops_at: float | None = None
        self._kept_memory = KeptMemory(running.memory_budget)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, on the metrics port first: probes see how the rest starts."""
        if self.monitoring is not None:
            await self.monitoring.startup()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: the first one begins the drain."""
        settings = self.running.settings
        pause = settings.drain_seconds if self.running.status is HealthStatus.READY else 0.0
        if sig == signal.SIGTERM and self._stops_at is None and pause and self.started:
            self.drain()
            self._stops_at = monotonic() + pause
        else:
            self._end_within(settings.shutdown_seconds + _LAST_SECONDS)
            super().handle_exit(sig, frame)

    def drain(self) -> None:
        """Begin the drain."""
        settings = self.running.settings
        self._end_within(settings.drain_seconds + settings.shutdown_seconds + _LAST_SECONDS)
        self.running.drain()
        _log.info("Draining: requests are served for another %g seconds.", settings.drain_seconds)

    def stop(self) -> None:
        """Accept nothing more, and end when what is under way has ended."""
        self._end_within(self.running.settings.shutdown_seconds + _LAST_SECONDS)
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Check, ten times a second, whether the drain is over."""
        if self.monitoring is not None:
            await self.monitoring.on_tick(counter)  # sets the date that its responses have
        self._kept_memory.tick()
        self.running.tick()
        if self._stops_at is not None and monotonic() >= self._stops_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and then all else, but first take the connections that the system has accepted already."""
        self.running.closing.set()
        for server in self.servers:
            kept = [socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets]
            server.close()
            for listening in kept:
                await self._take_all(listening)
        await super().shutdown(sockets)
        if self.monitoring is not None:
            await self.monitoring.shutdown()

    async def _take_all(self, listening: socket.socket) -> None:
        """Accept the connections that wait, then close: closing alone would reset them."""
        listening.setblocking(False)
        taken = []
        with listening, suppress(BlockingIOError):
            while True:
                taken.append(listening.accept()[0])
        # A client that stalls in its TLS handshake must not hold up the shutdown.
        beginning = asyncio.gather(*map(self.serve_accepted, taken), return_exceptions=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(beginning, _HANDSHAKE_SECONDS)
