"""The servers of a worker process, on connections that its supervisor hands over."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from types import FrameType

import uvicorn

from requant_service.runtime.listening import Port
from requant_service.runtime.process_exit import Deadline
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.shared_numbers import Shared
from requant_service.server.servers import DrainingServer, MonitoringServer
from requant_service.server.worker_channel import Command, WorkerChannel


class WorkerServer(DrainingServer):
    """The main server of each worker, made and bound before they are forked.

    It stops when its channel has ended, after what came through it.
    """

    def __init__(self, config: uvicorn.Config, running: Runtime, monitoring: MonitoringServer | None) -> None:
        super().__init__(config, running, monitoring)
        self._channel: WorkerChannel | None = None
        self._serving: dict[Port, Callable[[socket.socket], Awaitable[None]]] = {Port.HTTP: self.serve_accepted}
        if monitoring is not None:
            self._serving[Port.MONITORING] = monitoring.serve_accepted
        self._beginning: set[asyncio.Task[None]] = set()

    def take_from(self, channel: WorkerChannel) -> None:
        """Take connections from a channel. Called in the worker: there is a thread from here on."""
        self._channel = channel
        self._end_within = Deadline().end_within
        # Its file is the supervisor's.
        self._unix_socket = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and receive connections."""
        await super().startup(sockets)
        if self.running.serve_grpc is not None:
            self._serving[Port.GRPC] = self.running.serve_grpc
        assert self._channel is not None
        asyncio.get_running_loop().add_reader(self._channel.fileno(), self._receive, self._channel)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ignore a signal: what is to be done the supervisor says."""

    def _receive(self, channel: WorkerChannel) -> None:
        if not channel.receive(self._accepted, self._obey):
            asyncio.get_running_loop().remove_reader(channel.fileno())
            self.stop()

    def _obey(self, command: Command) -> None:
        if command is Command.DRAIN:
            self.drain()

    def _accepted(self, connection: socket.socket, port: Port) -> None:
        connection.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._begin(connection, port))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(self, connection: socket.socket, port: Port) -> None:
        """Begin to serve a connection."""
        try:
            await self._serving[port](connection)
        except OSError:
            # The client has left, or the handshake failed: no server had the connection, to count its end.
            self.running.numbers.add(Shared.CLOSED_CONNECTIONS, 1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve what was handed over last, and end."""
        if self._beginning:
            await asyncio.wait(self._beginning, timeout=1.0)
        await super().shutdown(sockets)
