"""A port that serves HTTP/2: its connections, how many there are, their timeouts, and how it stops."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Callable, Iterable

from requant_service.http2.connection import MAX_STREAMS, ConnectionLimits, Http2Connection
from requant_service.http2.frames import Fields
from requant_service.http2.stream import Stream

MAX_CONNECTIONS = 1000
# Streams that all connections together should have, as long as there are enough for each.
_STREAMS_OF_ALL = 4096
_MIN_STREAMS = 4
_TICK_SECONDS = 0.5


class Http2Listener:
    """Listens on sockets that are bound, or serves connections that were accepted elsewhere.

    `connections`: where those that are open are kept. Of more than `MAX_CONNECTIONS` the oldest is closed of those
    without a stream that counts (`Stream.is_wanted`); if all have one, the new connection is. Connections share the
    streams: the more there are, the fewer each may have.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        open_stream: Callable[[Http2Connection, int, Fields], Stream],
        tls: ssl.SSLContext | None,
        connections: set[Http2Connection],
    ) -> None:
        self.connections = connections
        self._limits = limits
        self._open_stream = open_stream
        self._tls = tls
        self._handshake_seconds = None if tls is None else limits.head_seconds
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.get_running_loop()
        self._ticker: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        # Half of the files that the process may open: the rest is for HTTP.
        self._max_connections = min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)

        self._tick()

    async def listen(self, sockets: Iterable[socket.socket], backlog: int) -> None:
        """Accept connections."""
        for each in sockets:
            self._servers.append(
                await self._loop.create_server(
                    self._connect,
                    sock=each,
                    ssl=self._tls,
                    ssl_handshake_timeout=self._handshake_seconds,
                    backlog=backlog,
                )
            )

    async def serve_accepted(self, connection: socket.socket) -> None:
        """Serve a connection that was accepted elsewhere. Return when its TLS handshake has ended, if it has one."""
        await self._loop.connect_accepted_socket(
            self._connect, connection, ssl=self._tls, ssl_handshake_timeout=self._handshake_seconds
        )

    def _connect(self) -> Http2Connection:
        return Http2Connection(self._limits, self._open_stream, self._max_streams, self._made, self._lost)

    def _made(self, connection: Http2Connection) -> None:
        if len(self.connections) >= self._max_connections:
            idle = [each for each in self.connections if not each.is_wanted()]
            min(idle, key=lambda each: each.idle_since, default=connection).abort()
        self.connections.add(connection)

    def _lost(self, connection: Http2Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    def _max_streams(self) -> int:
        return max(_MIN_STREAMS, min(MAX_STREAMS, _STREAMS_OF_ALL // len(self.connections)))

    def _tick(self) -> None:
        now = self._loop.time()
        for connection in list(self.connections):
            connection.tick(now)
        self._ticker = self._loop.call_later(_TICK_SECONDS, self._tick)

    async def stop(self, seconds: float) -> None:
        """Take no more connections and no more streams; give those that are open `seconds` to end."""
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.go_away("the service is stopping")
        if self.connections:
            self._empty.clear()
            timer = self._loop.call_later(seconds, self._abort)
            await self._empty.wait()
            timer.cancel()
        if self._ticker is not None:
            self._ticker.cancel()

    def _abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()
        self._empty.set()
