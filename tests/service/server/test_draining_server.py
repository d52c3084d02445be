"""The end of the server: what the system has accepted is served, and an idle connection has a last moment."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from requant_service.runtime.runtime import HealthStatus, Runtime
from requant_service.runtime.settings import Settings
from requant_service.server.http1_protocol import http_protocol
from requant_service.server.servers import DrainingServer
from requant_service.server.timeouts import RequestLimits
from tests.conftest import started
from tests.service.server.test_read_timeouts import echo
from tests.support.certificates import make_certificate

LAST_SECONDS = 1.5
REQUEST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"


def server(options: dict[str, Any] | None = None, **settings: float) -> DrainingServer:
    http = http_protocol(RequestLimits(), LAST_SECONDS)
    options = {"port": 0, **(options or {})}
    config = uvicorn.Config(echo, lifespan="off", http=http, loop="uvloop", log_config=None, **options)
    return DrainingServer(config, Runtime(Settings(**settings)))  # type: ignore[arg-type]


async def start(made: DrainingServer) -> socket.socket:
    """Start it, and connect a client that the event loop has not seen yet."""
    made.config.load()
    made.lifespan = made.config.lifespan_class(made.config)
    await made.startup()
    client = socket.socket(socket.AF_INET if made.config.uds is None else socket.AF_UNIX)
    client.settimeout(10)
    client.connect(made.servers[0].sockets[0].getsockname())
    return client


def received(client: socket.socket) -> bytes:
    """All that came until the other side closed."""
    found = b""
    while data := client.recv(1 << 16):
        found += data
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["tcp", "unix", "tls"])
def test_connections_that_wait_to_be_accepted_are_served(kind: str, tmp_path: Path) -> None:
    """Also behind one that does not go on with its handshake."""
    options: dict[str, Any] = {"uds": str(tmp_path / "socket")} if kind == "unix" else {}
    if kind == "tls":
        files = make_certificate(tmp_path / "files")
        options = {"ssl_certfile": files.certificate, "ssl_keyfile": files.key}

    def exchange(client: socket.socket) -> bytes:
        if kind == "tls":
            client = files.client_context().wrap_socket(client, server_hostname="localhost")
        with client:
            client.sendall(REQUEST)
            return received(client)

    async def scenario() -> bytes:
        made = server(options)
        silent = await start(made)
        client = socket.socket(silent.family)
        client.settimeout(10)
        client.connect(silent.getpeername())
        with silent:
            reply = asyncio.create_task(asyncio.to_thread(exchange, client))
            await made.shutdown()
            return await reply

    reply = asyncio.run(scenario())
    assert reply.startswith(b"HTTP/1.1 200")
    assert reply.endswith(b"body")


@pytest.mark.exhaustive
def test_a_connection_without_a_request_has_a_last_moment() -> None:
    async def scenario() -> tuple[bytes, float]:
        made = server()
        client = await start(made)
        ending = asyncio.create_task(made.shutdown())
        await asyncio.sleep(0.1)
        await asyncio.to_thread(client.sendall, REQUEST)
        with client:
            began = time.monotonic()
            await ending
            seconds = time.monotonic() - began
            return received(client), seconds

    reply, seconds = asyncio.run(scenario())
    assert reply.startswith(b"HTTP/1.1 200")
    assert reply.endswith(b"body")
    # Far less than the 30 seconds that requests under way have.
    assert seconds < 10


@pytest.mark.parametrize(("drain", "signals", "stops"), [(30.0, 1, False), (30.0, 2, True), (0.0, 1, True)])
def test_the_first_signal_drains_and_the_second_stops(drain: float, signals: int, stops: bool) -> None:
    async def scenario() -> tuple[bool, HealthStatus]:
        made = server(drain_seconds=drain)
        client = await start(made)
        made.running.status = HealthStatus.READY
        for _ in range(signals):
            made.handle_exit(signal.SIGTERM, None)
        await made.on_tick(1)
        found = made.should_exit, made.running.status
        client.close()
        await made.shutdown()
        return found

    assert asyncio.run(scenario()) == (stops, HealthStatus.DRAINING if drain else HealthStatus.READY)


@pytest.mark.exhaustive
def test_an_interrupt_ends_a_ready_server_without_a_word(tmp_path: Path) -> None:
    with started(tmp_path / "log") as (_, process):
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    assert "KeyboardInterrupt" not in (tmp_path / "log").read_text()
