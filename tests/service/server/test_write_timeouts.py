"""How replies leave: the head together with the first part of its body, and never later than the reply ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Any

from service.server.write_timeouts import WriteTimeoutTransport


class Transport(asyncio.Transport):
    """Keeps what each call writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.written.append(b"".join(map(bytes, list_of_data)))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.written.append(b"EOF")

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


def transport() -> tuple[WriteTimeoutTransport, list[bytes]]:
    transport, loop = Transport(), asyncio.new_event_loop()
    loop.close()
    return WriteTimeoutTransport(transport, 1.0, loop), transport.written


HEAD, CONTINUE = b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"


def test_a_head_leaves_with_the_first_part_of_its_body() -> None:
    leaving, written = transport()
    for body in (b"first", b"HTTP/1.1 "):
        leaving.response_begins()
        leaving.write(HEAD)
        assert not written
        leaving.write(body)
        leaving.write(b"rest")
        assert written == [HEAD + body, b"rest"]
        written.clear()


def test_100_continue_does_not_wait_and_is_no_head() -> None:
    leaving, written = transport()
    leaving.response_begins()
    leaving.write(CONTINUE)
    leaving.write(HEAD)
    assert written == [CONTINUE]
    leaving.write(b"")
    assert written == [CONTINUE, HEAD]


def test_a_head_without_a_body_leaves_when_the_reply_ends() -> None:
    leaving, written = transport()
    leaving.response_begins()
    leaving.write(HEAD)
    leaving.flush()
    leaving.flush()
    assert written == [HEAD]
    leaving.write(b"of the next request, which could not be read")
    assert len(written) == 2


def test_a_head_leaves_before_the_connection_is_closed() -> None:
    leaving, written = transport()
    leaving._loop = asyncio.new_event_loop()
    leaving.response_begins()
    leaving.write(HEAD)
    leaving.close()
    leaving.cancel()
    leaving._loop.close()
    assert written == [HEAD, b"EOF"]


class TlsTransport(Transport):
    """One without half-close, whose bytes have left its own buffer for that of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection

    def can_write_eof(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._connection if name == "socket" else default

    def close(self) -> None:
        self.written.append(b"close")

    def abort(self) -> None:
        self.written.append(b"abort")


def test_tls_is_closed_when_the_client_has_received_all_and_then_cut() -> None:
    async def scenario() -> list[bytes]:
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
            assert not inner.written
            while unread:
                unread -= len(client.recv(1 << 20))
            await asyncio.sleep(1.5)
            leaving.cancel()
            return inner.written

    assert asyncio.run(scenario()) == [b"close", b"abort"]
