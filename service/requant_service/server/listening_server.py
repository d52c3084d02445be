"""uvicorn's server on a socket that is made here: TCP, TCP with TLS, or a unix socket.

uvicorn sets no limit on the time of a TLS handshake, and removes no unix socket.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from pathlib import Path

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from requant_service.server.unix_socket import UnixSocket

_log = logging.getLogger("uvicorn.error")


class ListeningServer(uvicorn.Server):
    """A server that listens where its configuration says: on `uds`, or on `host` and `port`.

    `handshake_seconds`: how long a TLS handshake may take. `port_setting`: what the port is called in the settings.
    """

    def __init__(self, config: uvicorn.Config, handshake_seconds: float = 10.0, port_setting: str = "port") -> None:
        super().__init__(config)
        self._port_setting = port_setting
        self._handshake_seconds = handshake_seconds if config.is_ssl else None
        self._unix_socket: UnixSocket | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and listen. End the process if that is not possible, as uvicorn does."""
        await super().startup(sockets=[])
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        where = self.config.uds or f"http{'s' if self.config.is_ssl else ''}://{host}:{self.config.port}"
        try:
            self.servers = [await self._listen()]
        except OSError as error:
            setting = self._port_setting if self.config.uds is None else "uds"
            _log.error("%s: cannot listen on %s: %s.", setting, where, error.strerror or error)
            await self.lifespan.shutdown()
            sys.exit(STARTUP_FAILURE)
        _log.info("Listening on %s", where)

    async def _listen(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        if self.config.uds is not None:
            self._unix_socket = UnixSocket(Path(self.config.uds))
            return await loop.create_unix_server(
                self._protocol, sock=self._unix_socket.socket, backlog=self.config.backlog
            )
        return await loop.create_server(
            self._protocol,
            self.config.host,
            self.config.port,
            backlog=self.config.backlog,
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
        if self._unix_socket is not None:
            self._unix_socket.unlink()
        await super().shutdown(sockets)
