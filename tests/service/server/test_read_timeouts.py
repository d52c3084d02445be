"""Slow and oversized requests on a real socket, with limits small enough to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from requant_service.server.http1_protocol import http_protocol
from requant_service.server.timeouts import RequestLimits

LIMITS = RequestLimits(head_bytes=2000, header_fields=10, head_seconds=0.3, body_seconds=0.3)
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def connection(limits: RequestLimits) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server with small limits."""
    config = uvicorn.Config(echo, http=http_protocol(limits), lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
        "127.0.0.1",
        0,
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()


def talk(scenario: Talk, limits: RequestLimits = LIMITS) -> None:
    async def run() -> None:
        async with asyncio.timeout(20), connection(limits) as streams:
            await scenario(*streams)

    asyncio.run(run())


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:-2])
    return int(head[9:12]), await reader.readexactly(int(lines[b"content-length"]))


async def refused(reader: asyncio.StreamReader, status: int, code: str) -> None:
    """The reply is this problem, and then the connection ends."""
    found, body = await answer(reader)
    assert (found, json.loads(body)["code"]) == (status, code)
    assert await reader.read() == b""


async def drip(writer: asyncio.StreamWriter, data: bytes, pause: float) -> None:
    with contextlib.suppress(ConnectionError):
        for byte in data:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(pause)


HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"


def test_a_connection_that_says_nothing() -> None:
    talk(lambda reader, writer: refused(reader, 408, "request_timeout"))


def test_a_head_that_drips() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dripping = asyncio.create_task(drip(writer, HEAD * 10, 0.02))
        await refused(reader, 408, "request_timeout")
        dripping.cancel()

    talk(scenario)


def test_a_body_that_drips() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"1")
        await refused(reader, 408, "request_timeout")

    talk(scenario)


def test_a_chunked_body_that_drips() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        dripping = asyncio.create_task(drip(writer, b"1\r\na\r\n" * 100, 0.02))
        await refused(reader, 408, "request_timeout")
        dripping.cancel()

    talk(scenario)


@pytest.mark.exhaustive
def test_the_second_request_has_its_own_time() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(4):
            writer.write(HEAD[:20])
            await asyncio.sleep(0.4)
            writer.write(HEAD[20:] + b"12")
            await asyncio.sleep(0.4)
            writer.write(b"345")
            assert await answer(reader) == (200, b"12345")
        writer.write(HEAD[:20])
        await refused(reader, 408, "request_timeout")

    # Together the four take longer than one may.
    talk(scenario, replace(LIMITS, head_seconds=1.5, body_seconds=1.5))


@pytest.mark.exhaustive
def test_an_idle_connection_is_left_to_keep_alive() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(HEAD + b"12345")
            assert await answer(reader) == (200, b"12345")
            await asyncio.sleep(0.5)

    talk(scenario)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 3000 + b" HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.0\r\nX: " + b"a" * 3000 + b"\r\n\r\n",
        b"GET / HTTP/1.0\r\n" + b"".join(b"X%d: a\r\n" % i for i in range(11)) + b"\r\n",
        b"GET / HTTP/1.0\r\n" + b"X: " + b"a" * 200_000,
    ],
    ids=["path", "field", "fields", "field without end"],
)
@pytest.mark.parametrize("cut", [1 << 20, 700], ids=["at once", "in parts"])
def test_a_large_head(head: bytes, cut: int) -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send() -> None:
            with contextlib.suppress(ConnectionError):
                for at in range(0, len(head), cut):
                    writer.write(head[at : at + cut])
                    await writer.drain()
                    await asyncio.sleep(0)
                writer.write(b"a")

        sending = asyncio.create_task(send())
        found, body = await answer(reader)
        assert (found, json.loads(body)["code"]) in ((431, "head_too_large"), (408, "request_timeout"))
        # A field without an end that came at once is too large only when the next byte comes; then it is slow.
        if not head.endswith(b"a" * 200_000) or cut == 700:
            assert found == 431
        sending.cancel()

    talk(scenario)


@pytest.mark.parametrize(("value", "status"), [(1998, 200), (1999, 431)])
def test_the_limit_of_a_head(value: int, status: int) -> None:
    """The path has one byte and the field's name another."""

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.0\r\nX: " + b"a" * value + b"\r\n\r\n")
        assert (await answer(reader))[0] == status

    talk(scenario)
