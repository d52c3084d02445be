"""How long a connection may last: with streams that never end, without any, and with a client that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from requant_service.http2.connection import ConnectionLimits
from requant_service.http2.frames import ErrorCode
from requant_service.http2.listener import Http2Listener
from requant_service.http2.stream import Stream
from requant_service.runtime.listening import BACKLOG, bound_sockets
from tests.conftest import free_port
from tests.support.http2_client import AsyncHttp2Client, Incoming, data, head_of, headers, opening

SECONDS = 60
OPEN = headers(1, head_of("/service/method"))


@asynccontextmanager
async def listening(limits: ConnectionLimits) -> AsyncIterator[int]:
    """A port on which streams stay open until their client ends them."""
    listener = Http2Listener(limits, lambda connection, number, _: Stream(connection, number), None, set())
    port = free_port()
    await listener.listen(bound_sockets("127.0.0.1", port), BACKLOG)
    try:
        async with asyncio.timeout(SECONDS):
            yield port
    finally:
        await listener.stop(0)


async def send_on(client: AsyncHttp2Client) -> None:
    while True:
        client.writer.write(data(1, b"x"))
        await asyncio.sleep(0.05)


@pytest.mark.exhaustive
def test_a_stream_that_sends_on_and_on_ends_with_its_connection() -> None:
    """Each message comes in time, so that nothing else ends the stream."""

    async def scenario() -> None:
        async with listening(ConnectionLimits(age_seconds=1, grace_seconds=1)) as port:
            began = asyncio.get_running_loop().time()
            client = await AsyncHttp2Client.connect(port)
            client.writer.write(OPEN)
            sending = asyncio.create_task(send_on(client))
            while await client.read():
                pass
            sending.cancel()
            client.writer.close()
            assert client.incoming.goaway == (ErrorCode.NO_ERROR, b"the connection has reached its age")
            assert asyncio.get_running_loop().time() - began > 2

    asyncio.run(scenario())


def test_a_connection_without_a_stream_is_closed() -> None:
    async def scenario() -> None:
        async with listening(ConnectionLimits(idle_seconds=0.1)) as port:
            client = await AsyncHttp2Client.connect(port)
            while await client.read():
                pass
            client.writer.close()
            assert client.incoming.goaway == (ErrorCode.NO_ERROR, b"the connection was idle")

    asyncio.run(scenario())


@pytest.mark.exhaustive
def test_a_client_that_answers_no_ping_is_gone() -> None:
    async def scenario() -> None:
        async with listening(ConnectionLimits(ping_seconds=0.2, pong_seconds=0.2)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(opening() + OPEN)
            received = b""
            try:
                while came := await reader.read(1 << 16):
                    received += came
            except ConnectionResetError:
                pass
            writer.close()
            # The acknowledgement of settings, and the ping.
            assert len(Incoming().add(received)) == 9 + 17

    asyncio.run(scenario())


@pytest.mark.exhaustive
def test_a_client_that_answers_pings_stays() -> None:
    async def scenario() -> None:
        async with listening(ConnectionLimits(ping_seconds=0.2, pong_seconds=2)) as port:
            client = await AsyncHttp2Client.connect(port)
            client.writer.write(OPEN)

            async def read() -> None:
                while await client.read():
                    pass

            reading = asyncio.create_task(read())
            assert not (await asyncio.wait([reading], timeout=4))[0]
            assert client.incoming.goaway is None
            client.writer.close()
            reading.cancel()

    asyncio.run(scenario())
