"""How replies leave: the head together with the first part of its body, and never later than the reply ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

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
