"""One request and its response: how the body is handed on, and how the response leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from requant_service.runtime.memory_budget import MemoryBudget
from requant_service.server.http_exchange import STATUS_LINE, HttpExchange, PendingRequests
from requant_service.server.timeouts import WriteTimeoutTransport


class Transport(asyncio.Transport):
    """Keeps what each call writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.written.append(b"".join(map(bytes, list_of_data)))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def resume_reading(self) -> None:
        pass


def start(status: int = 200, /, **fields: str) -> dict[str, Any]:
    headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def exchange(transport: Transport, method: str = "POST", **options: bool) -> HttpExchange:
    loop = asyncio.get_running_loop()
    chosen = {"keep_alive": True, "expects_continue": False, **options}
    flow = PendingRequests(transport, MemoryBudget(1 << 20, 0, 0.0))
    scope = {"type": "http", "method": method, "headers": []}
    return HttpExchange(scope, WriteTimeoutTransport(transport, 1.0, loop), flow, lambda: None, [], **chosen)


def sent_by(*messages: dict[str, Any], method: str = "POST", **options: bool) -> tuple[list[bytes], HttpExchange]:
    """Return what is written when an application sends these messages."""
    transport = Transport()

    async def run() -> HttpExchange:
        current = exchange(transport, method, **options)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            for message in messages:
                await send(message)

        await current.run(app)
        current._transport.cancel()
        return current

    return transport.written, asyncio.run(run())


@pytest.mark.parametrize("size", [0, 1, 64 << 10, (64 << 10) + 1])
def test_a_head_leaves_with_the_first_part_of_its_body(size: int) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (size + 4)
    written, current = sent_by(start(content_length=str(size + 4)), body(bytes(size), more=True), body(b"rest"))
    assert written == [head + bytes(size), b"rest"]
    assert current.response_complete


def test_a_head_without_a_body_leaves_when_the_response_ends() -> None:
    assert sent_by(start(304), body(b""))[0] == [b"HTTP/1.1 304 Not Modified\r\n\r\n"]
    assert sent_by(start(content_length="5"), body(b"12345"), method="HEAD")[0] == [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
    ]


@pytest.mark.parametrize("field", [{"connection": "close"}, {}])
def test_the_last_response_of_a_connection_says_so_once(field: dict[str, str]) -> None:
    written, current = sent_by(start(content_length="0", **field), body(b""), keep_alive=bool(field))
    assert written == [b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"]
    assert not current.keep_alive


@pytest.mark.parametrize(
    "messages",
    [
        (start(content_length="3"), body(b"1234")),
        (start(content_length="3"), body(b"12")),
        (start(content_length="3"), body(b"12", more=True), body(b"34")),
        (start(), body(b"")),
        (start(content_length="0", x_injected="a\r\nset-cookie: b"), body(b"")),
        (start(content_length="0", x_injected="a\nb"), body(b"")),
        (start(content_length="0", x_injected="a\rb"), body(b"")),
    ],
)
def test_a_response_is_of_the_length_that_it_states_and_its_fields_are_lines(messages: tuple[dict[str, Any]]) -> None:
    written, current = sent_by(*messages)
    assert not current.response_complete
    assert b"set-cookie" not in b"".join(written)
    assert current._transport.is_closing()


def test_what_an_application_raises_is_answered_with_500() -> None:
    transport = Transport()

    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError

    async def run() -> None:
        current = exchange(transport)
        await current.run(fail)
        current._transport.cancel()

    asyncio.run(run())
    assert transport.written[0].startswith(STATUS_LINE[500])
    assert transport.written[0].endswith(b"\r\n\r\nInternal Server Error")


def test_100_continue_is_sent_when_the_body_is_asked_for() -> None:
    transport = Transport()

    async def run() -> None:
        current = exchange(transport, expects_continue=True)
        waiting = asyncio.create_task(current.receive())
        await asyncio.sleep(0)
        assert transport.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
        current.body_arrives(b"a")
        assert (await waiting)["body"] == b"a"
        current.body_ends()
        await current.receive()
        assert len(transport.written) == 1

    asyncio.run(run())


def test_a_body_is_received_in_parts_and_then_the_end_of_the_connection() -> None:
    async def run() -> None:
        current = exchange(Transport())
        current.body_arrives(first := b"first")
        received = await current.receive()
        assert received["body"] is first
        assert received["more_body"]
        for part in (b"a", b"b"):
            current.body_arrives(part)
        assert current.body_bytes == 2
        current.body_ends()
        assert await current.receive() == {"type": "http.request", "body": b"ab", "more_body": False}
        assert current.body_bytes == 0
        waiting = asyncio.create_task(current.receive())
        await asyncio.sleep(0)
        assert not waiting.done()
        current.disconnect()
        assert await waiting == {"type": "http.disconnect"}
        await current.send(start(content_length="0"))
        assert not current.response_started

    asyncio.run(run())
