"""What the server and the HTTP/1.1 protocol take from uvicorn beyond its public interface (docs/architecture.md).

When one of these fails after an update, read uvicorn's changes in the named class before anything here is adapted.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (HttpToolsProtocol.__init__, ["self", "config", "server_state", "app_state", "_loop"]),
        (HttpToolsProtocol.shutdown, ["self"]),
        (uvicorn.Server.__init__, ["self", "config"]),
        (uvicorn.Server.handle_exit, ["self", "sig", "frame"]),
        (uvicorn.Server.on_tick, ["self", "counter"]),
        (uvicorn.Server.startup, ["self", "sockets"]),
        (uvicorn.Server.shutdown, ["self", "sockets"]),
    ],
)
def test_what_is_overridden_or_called_takes_the_same_arguments(
    function: Callable[..., Any], expected: list[str]
) -> None:
    assert list(inspect.signature(function).parameters) == expected


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError


def test_a_server_has_what_draining_uses() -> None:
    server = uvicorn.Server(uvicorn.Config(answer, http=HttpToolsProtocol, log_config=None))
    server.config.load()
    assert (server.started, server.should_exit) == (False, False)
    assert server.config.http_protocol_class is HttpToolsProtocol
    assert isinstance(server.server_state, ServerState)
    source = inspect.getsource(uvicorn.Server.startup)
    assert "self.servers" in source
    assert all(part in source for part in ("server_state=self.server_state", "app_state=self.lifespan.state"))


def test_a_server_that_is_given_no_sockets_listens_nowhere() -> None:
    """`ListeningServer` listens itself."""

    async def started() -> uvicorn.Server:
        server = uvicorn.Server(uvicorn.Config(answer, http=HttpToolsProtocol, lifespan="off", log_config=None))
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=[])
        return server

    server = asyncio.run(started())
    assert (server.servers, server.started) == ([], True)
    assert (server.config.uds, server.config.ssl, server.config.is_ssl) == (None, None, False)


def test_a_configuration_has_what_the_protocol_reads() -> None:
    config = uvicorn.Config(answer, timeout_keep_alive=7, lifespan="off", log_config=None, proxy_headers=False)
    config.load()
    assert config.loaded_app is answer
    assert config.timeout_keep_alive == 7


def test_a_server_looks_for_connections_and_tasks_where_the_protocol_puts_them() -> None:
    state = ServerState()
    assert (state.connections, state.tasks, state.total_requests, state.default_headers) == (set(), set(), 0, [])
    source = inspect.getsource(uvicorn.Server.shutdown)
    assert "for connection in list(self.server_state.connections):\n            connection.shutdown()" in source
    assert "self.server_state.tasks" in source
    # A server sets the list anew each second, so it is read for each response.
    assert "self.server_state.default_headers = " in inspect.getsource(uvicorn.Server.on_tick)
    assert asyncio.iscoroutinefunction(uvicorn.Server.on_tick)
