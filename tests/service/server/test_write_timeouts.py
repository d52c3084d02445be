"""The close of a connection with TLS, which cannot close one side: not before the client has received all."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from requant_service.server.timeouts import WriteTimeoutTransport


class TlsTransport(asyncio.Transport):
    """One without half-close, whose bytes have left its own buffer for that of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self.calls: list[str] = []
        self._connection = connection

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._connection if name == "socket" else default

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


def test_tls_is_closed_when_the_client_has_received_all_and_then_cut() -> None:
    async def scenario() -> list[str]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            client = socket.create_connection(listening.getsockname())
            connection, _ = listening.accept()
        with client, connection:
            connection.setblocking(False)
            unread = 0
            try:
                while True:
                    unread += connection.send(bytes(1 << 20))
            except BlockingIOError:
                pass
            inner = TlsTransport(connection)
            leaving = WriteTimeoutTransport(inner, 30.0, asyncio.get_running_loop())
            leaving.close()
            await asyncio.sleep(0.7)
            assert not inner.calls
            while unread:
                unread -= len(client.recv(1 << 20))
            async with asyncio.timeout(30):
                while len(inner.calls) < 2:
                    await asyncio.sleep(0.05)
            leaving.cancel()
            return inner.calls

    assert asyncio.run(scenario()) == ["close", "abort"]
