"""What the HTTP/1.1 protocol and the server use of uvicorn beyond its public interface (docs/architecture.md).

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
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (HttpToolsProtocol.__init__, ["self", "config", "server_state", "app_state", "_loop"]),
        (HttpToolsProtocol.connection_made, ["self", "transport"]),
        (HttpToolsProtocol.connection_lost, ["self", "exc"]),
        (HttpToolsProtocol.data_received, ["self", "data"]),
        (HttpToolsProtocol.pause_writing, ["self"]),
        (HttpToolsProtocol.resume_writing, ["self"]),
        (HttpToolsProtocol.shutdown, ["self"]),
        (HttpToolsProtocol.on_message_begin, ["self"]),
        (HttpToolsProtocol.on_url, ["self", "url"]),
        (HttpToolsProtocol.on_header, ["self", "name", "value"]),
        (HttpToolsProtocol.on_headers_complete, ["self"]),
        (HttpToolsProtocol.on_body, ["self", "body"]),
        (HttpToolsProtocol.on_message_complete, ["self"]),
        (HttpToolsProtocol.on_response_complete, ["self"]),
        (HttpToolsProtocol._unset_keepalive_if_required, ["self"]),
        (FlowControl.__init__, ["self", "transport"]),
        (FlowControl.pause_reading, ["self"]),
        (FlowControl.resume_reading, ["self"]),
        (uvicorn.Server.__init__, ["self", "config"]),
        (uvicorn.Server.handle_exit, ["self", "sig", "frame"]),
        (uvicorn.Server.on_tick, ["self", "counter"]),
        (uvicorn.Server.shutdown, ["self", "sockets"]),
    ],
)
def test_what_is_overridden_or_called_takes_the_same_arguments(
    function: Callable[..., Any], expected: list[str]
) -> None:
    assert parameters(function) == expected


def test_no_other_method_of_the_protocol_writes_to_the_parser_or_starts_requests() -> None:
    """A method that is new might do behind our back what ours do: parse, answer, or close."""
    known = {"__init__", "eof_received", "handle_websocket_upgrade", "send_400_response", "timeout_keep_alive_handler"}
    known |= {"_get_upgrade", "_should_upgrade", "_should_upgrade_to_ws", "_unsupported_upgrade_warning"}
    known |= {"_unset_keepalive_if_required", "_start_asgi_task", "connection_made", "connection_lost", "shutdown"}
    known |= {"data_received", "pause_writing", "resume_writing", "on_message_begin", "on_url", "on_header"}
    known |= {"on_headers_complete", "on_body", "on_message_complete", "on_response_complete"}
    assert {name for name, member in vars(HttpToolsProtocol).items() if inspect.isfunction(member)} == known


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def resume_reading(self) -> None:
        pass


def test_the_state_of_a_request_is_where_it_is_looked_for() -> None:
    async def run() -> None:
        config = uvicorn.Config(answer, ws="none", log_config=None, proxy_headers=False)
        config.load()
        # The type checker takes what is assigned once for what stays.
        protocol: Any = HttpToolsProtocol(config, ServerState(), {})
        transport = Transport()
        protocol.connection_made(transport)
        assert isinstance(protocol.flow, FlowControl)
        assert protocol.transport is transport
        assert protocol.cycle is None
        protocol.data_received(b"POST /a?b HTTP/1.1\r\nHost: c\r\nContent-Length: 3\r\n\r\nab")
        cycle: Any = protocol.cycle
        scope = protocol.scope
        assert type(cycle) is RequestResponseCycle
        assert cycle.scope is scope
        assert cycle.transport is transport
        assert cycle.flow is protocol.flow
        assert (protocol.url, protocol.headers) == (b"/a?b", [(b"host", b"c"), (b"content-length", b"3")])
        assert scope["headers"] is protocol.headers
        assert (cycle.response_started, cycle.response_complete, cycle.disconnected) == (False, False, False)
        assert not cycle.waiting_for_100_continue
        protocol.data_received(b"c")
        while not cycle.response_complete:
            await asyncio.sleep(0)
        assert cycle.response_started
        assert not protocol.pipeline
        # The head in one write, and each part of the body in one of its own.
        assert transport.written == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", b"ok"]
        assert protocol.timeout_keep_alive_task is not None
        protocol._unset_keepalive_if_required()
        assert protocol.timeout_keep_alive_task is None

    asyncio.run(run())


def test_reading_is_paused_by_a_flag_that_is_seen() -> None:
    transport = Transport()
    transport.pause_reading = lambda: None  # type: ignore[method-assign]
    flow: Any = FlowControl(transport)
    assert not flow.read_paused
    flow.pause_reading()
    assert flow.read_paused
    flow.resume_reading()
    assert not flow.read_paused
    assert HIGH_WATER_LIMIT == 64 << 10


def test_status_lines() -> None:
    assert STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
    assert STATUS_LINE[431] == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"


def test_a_server_has_what_draining_uses() -> None:
    server = uvicorn.Server(uvicorn.Config(answer, http=HttpToolsProtocol, log_config=None))
    server.config.load()
    assert (server.started, server.should_exit) == (False, False)
    assert server.config.http_protocol_class is HttpToolsProtocol
    assert isinstance(server.server_state, ServerState)
    source = inspect.getsource(uvicorn.Server.startup)
    assert "self.servers" in source
    assert all(part in source for part in ("server_state=self.server_state", "app_state=self.lifespan.state"))
