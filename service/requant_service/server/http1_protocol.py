"""HTTP/1.1 on one connection, as uvicorn's server takes a protocol: parsing one request at a time.

Pipelined requests stay unparsed until the one ahead of them is answered (`requant_service.server.http_exchange`). So
an error on a connection is always about the request that is being received, never about one whose response is being
sent: the responses come in order, each complete, then the problem, and then the connection closes.

A body of stated length does not pass through the parser, which would only copy it.

An offer to switch protocols (`Upgrade: h2c`, as Java's HttpClient and `curl --http2` send it) is ignored, as RFC 9110
section 7.8 allows. The parser, though, ends such a message with its head and leaves the rest to the other protocol: the
body would be parsed as the next request, and whoever controls a body could smuggle requests. So the head is parsed
once more without its `Upgrade` field, and the body follows it as usual.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import unquote

import httptools
import uvicorn
from starlette.requests import Request
from uvicorn.server import ServerState

from requant.errors import LargeHeadError, MalformedRequestError, RequantError
from requant_service.http.problems import INTERNAL_DETAIL, error_response
from requant_service.runtime.executor import start_eagerly
from requant_service.runtime.memory_budget import MemoryBudget
from requant_service.runtime.request_context import context_of, ignore_float_exceptions, share_fields
from requant_service.server.http_exchange import HIGH_WATER_BYTES, STATUS_LINE, HttpExchange, PendingRequests
from requant_service.server.request_head import check_framing, http_minor_version, origin_form, without_upgrade
from requant_service.server.timeouts import ReadTimeouts, RequestLimits, Stage, WriteTimeoutTransport

_log = logging.getLogger("uvicorn.error")

# Steps of the parser (pieces, header fields, parts of a body) before other connections get a turn.
_STEPS = 64
# The size of a piece with many steps, and of one with few. A body of stated length is one step.
_MIN_PIECE, _MAX_PIECE, _FEW_STEPS = 1 << 10, 16 << 10, 8
# Empty lines accepted before a request (RFC 9112 section 2.2 asks for one).
_MAX_EMPTY_LINES = 8
# How much of a response the system may buffer unsent.
_MAX_UNSENT_BYTES = 256 << 10
# A head of at most this length is cached.
_MAX_CACHED_BYTES = 2 << 10


@dataclass(frozen=True, slots=True)
class _RequestHead:
    """A parsed head: its part of the ASGI scope, and the framing of the body."""

    scope: dict[str, Any]
    keep_alive: bool
    expects_continue: bool
    body_bytes: int


class HttpProtocol(asyncio.Protocol):
    """HTTP/1.1 on one connection.

    uvicorn makes one for each. It has `connections` and `tasks` in its `server_state`, and calls `shutdown`.
    """

    limits: ClassVar[RequestLimits] = RequestLimits()
    last_seconds: ClassVar[float] = 0.0
    budget: ClassVar[MemoryBudget] = MemoryBudget(1 << 62, 0, 0.0)

    flow: PendingRequests
    transport: WriteTimeoutTransport

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.exchange: HttpExchange | None = None
        self._app = config.loaded_app
        self._loop = _loop or asyncio.get_running_loop()
        self._server_state = server_state
        self._context = copy_context()
        self._connection_scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "root_path": "",
        }
        self._app_state = app_state
        self._unstarted: HttpExchange | None = None
        self._keep_alive_seconds = config.timeout_keep_alive
        self._idle_since = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._parser: httptools.HttpRequestParser
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._request_head: _RequestHead | None = None
        self._last_head: tuple[bytes, _RequestHead] | None = None
        self._read_timeouts = ReadTimeouts(self.limits, self._loop, self._fail)
        self._head = bytearray()
        self._body_left = 0
        self._framing = 0
        self._steps = 0
        self._piece_bytes = _MIN_PIECE
        self._scheduled = False
        self._fault: Exception | None = None
        self._is_head_request = False

    def _set_parser(self) -> None:
        """Use a new parser: nothing of one message may affect the next, as a trailer `Connection: close` would."""
        self._parser = httptools.HttpRequestParser(self)
        # Other versions get answers of their own (`http_minor_version`).
        self._parser.set_dangerous_leniencies(lenient_version=True)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the read timeout of the first head."""
        self._context.run(ignore_float_exceptions)
        self._server_state.connections.add(self)  # type: ignore[arg-type]  # uvicorn lists its own protocols there
        _bound_what_is_unsent(transport)
        self.flow = PendingRequests(transport, self.budget)
        self.transport = WriteTimeoutTransport(transport, self.limits.body_seconds, self._loop)
        secure = transport.get_extra_info("sslcontext") is not None
        self._connection_scope |= {
            "scheme": "https" if secure else "http",
            "server": _address(transport, "sockname"),
            "client": _address(transport, "peername"),
        }
        self._read_timeouts.update()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and the work on a request that was abandoned."""
        self._server_state.connections.discard(self)
        self._read_timeouts.cancel()
        self.transport.cancel()
        self.flow.clear()
        self.flow.resume_writing()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self.exchange is not None:
            _client_left(self.exchange)

    def shutdown(self) -> None:
        """Close after the current response; without one, after `last_seconds`, in which a request may still come.

        A client that has just connected, or kept its connection open, cannot know that the service is stopping.
        """
        if self.last_seconds and not self._is_unanswered():
            self._loop.call_later(self.last_seconds, self._end)
        else:
            self._end()

    def _end(self) -> None:
        """Close, after the current response if there is one."""
        if self._is_unanswered():
            assert self.exchange is not None
            self.exchange.keep_alive = False
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """Wait for a client that does not read its response, until the write timeout."""
        self.flow.pause_writing()
        self.transport.writing_paused(self.exchange)

    def resume_writing(self) -> None:
        """Continue: the client has read what was buffered."""
        self.transport.writing_resumed()
        self.flow.resume_writing()

    def _is_unanswered(self) -> bool:
        """Return whether there is a request whose response is not complete."""
        return self.exchange is not None and not self.exchange.response_complete

    def data_received(self, data: bytes) -> None:
        """Receive bytes from the socket."""
        if self.transport.is_closing():
            self.transport.discard(len(data))
        elif self._fault is None:
            rest = self._parse_whole(data) if self._is_idle() else data
            if rest:
                self.flow.add(rest)
                self._parse_pending()

    def _is_idle(self) -> bool:
        """Return whether the next byte begins a request that can be parsed now."""
        stage, exchange = self._read_timeouts.stage, self.exchange
        if stage is Stage.COMPLETE:
            between = exchange is None or exchange.response_complete
        else:
            between = stage is Stage.FIRST_HEAD
        return between and not self.flow and not self._scheduled

    def _parse_whole(self, data: bytes) -> bytes:
        """Parse a head that was received in one piece, as most are, and what came with it of a body of stated length.

        Return what follows. A client that keeps its connection mostly sends the same head again, which is not parsed
        again.
        """
        last = self._last_head
        try:
            if last is not None and data.startswith(last[0]):
                text, head = last
                end = len(text)
                self._read_timeouts.head_begins()
                whole = end + head.body_bytes
                if whole <= len(data):
                    self._begin_whole(head, data[end:whole])
                    end = whole
                else:
                    self._begin(head)
            else:
                end = data.find(b"\r\n\r\n", 0, _MAX_PIECE) + 4
                if end < 4:
                    return data
                text = data[:end]
                self._parse(memoryview(text))
                parsed = self._request_head
                if parsed is not None and end <= _MAX_CACHED_BYTES:
                    self._last_head = text, parsed
            if self._body_left:
                begin, end = end, end + self._body_left
                if begin < len(data):
                    self._take_body(data[begin:end])
        except Exception as error:  # whatever it is, the client gets a response
            self._fail(error)
            return b""
        self._run()
        self._read_timeouts.update()
        return data[end:]

    def _response_sent(self) -> None:
        """Parse what has arrived meanwhile, or wait for the next request."""
        self._server_state.total_requests += 1
        if self.transport.is_closing():
            self.flow.clear()
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self._fault is not None:
            self._fail(self._fault)
        elif self.flow:
            self._schedule()
        else:
            self._idle_since = self._loop.time()
            if self._idle_timer is None:
                self._idle_timer = self._loop.call_later(self._keep_alive_seconds, self._close_if_idle)

    def _close_if_idle(self) -> None:
        """Close if nothing was received since the last response for as long as connections are kept.

        The timer is not set again for each request: when it fires, it checks how long it is to wait.
        """
        self._idle_timer = None
        if self.transport.is_closing() or not self._is_idle():
            return
        left = self._idle_since + self._keep_alive_seconds - self._loop.time()
        if left > 0:
            self._idle_timer = self._loop.call_later(left, self._close_if_idle)
        else:
            self.transport.close()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._scheduled = False
        if not self.transport.is_closing():
            self._parse_pending()

    def _parse_pending(self) -> None:
        """Parse pending bytes, none beyond a request that is not answered yet, in turn with other connections."""
        self._steps = 0
        try:
            while self.flow and not self._is_answering():
                if self._scheduled or self._steps > _STEPS:
                    self._schedule()
                    break
                before = self._steps
                self._parse(self.flow.take(self._body_left, self._piece_bytes))
                self._run()
                few = self._steps - before < _FEW_STEPS
                self._piece_bytes = min(2 * self._piece_bytes, _MAX_PIECE) if few else _MIN_PIECE
            self.flow.reserve()
        except Exception as error:  # whatever it is, the client gets an answer
            self._fail(error)
            return
        self._read_timeouts.update()
        if self.flow.read_paused and self._read_timeouts.stage is not Stage.BODY:
            self.flow.resume_reading()

    def _is_answering(self) -> bool:
        """Return whether a complete request was received whose response is not sent yet."""
        return self._read_timeouts.stage is Stage.COMPLETE and self._is_unanswered()

    def _parse(self, piece: memoryview) -> None:
        """Parse a piece of one message."""
        self._steps += 1
        if self._body_left:
            whole = piece.obj
            self._take_body(whole if isinstance(whole, bytes) and len(whole) == len(piece) else piece.tobytes())
        elif self._read_timeouts.stage is Stage.BODY:
            self._framing += len(piece)
            self._feed(piece)
            if self._framing > self.limits.framing_bytes:
                raise LargeHeadError("a chunk size line or the trailer section is too long")
        else:
            if self._read_timeouts.stage is not Stage.HEAD:
                self._read_timeouts.head_begins()
                self._head.clear()
                self._request_head = None
                self._is_head_request = False
                self._set_parser()
            room = self.limits.framing_bytes - len(self._head)
            self._head += piece[:room]
            if len(piece) < 3 and self._head.count(b"\n") > _MAX_EMPTY_LINES and not self._head.strip(b"\r\n"):
                raise MalformedRequestError(f"there are more than {_MAX_EMPTY_LINES} empty lines before a request")
            self._feed(piece[:room])
            if len(piece) > room:
                raise self.limits.too_many_bytes()

    def _take_body(self, piece: bytes) -> None:
        """Take a part of a body of stated length."""
        self._body_left -= len(piece)
        self._body_arrives(piece)
        if not self._body_left:
            self._message_ends()

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._set_parser()
            self._feed(without_upgrade(self._head))
        except httptools.HttpParserCallbackError as error:
            raise (error.__context__ or error) from None

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        """Keep a part of the request target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header field, or a trailer, which is not merged into the fields (RFC 9110 section 6.5)."""
        self._steps += 1
        self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Start the request, unless its head is not acceptable or will be parsed again."""
        method, headers = self._parser.get_method(), self._headers
        self._is_head_request = method == b"HEAD"
        if len(self._head) > self.limits.head_bytes or len(headers) > self.limits.header_fields:
            self.limits.check_head(self._url, headers)
        minor_version = http_minor_version(self._head)
        if method == b"CONNECT":
            raise MalformedRequestError("the method is CONNECT; this is not a proxy")
        body_bytes = check_framing(headers, minor_version)
        if self._parser.should_upgrade():
            return
        target = httptools.parse_url(origin_form(method, self._url))
        path = target.path.decode("ascii")
        scope = {
            **self._connection_scope,
            "http_version": "1.1" if minor_version else "1.0",
            "method": method.decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": target.path,
            "query_string": target.query or b"",
            "headers": headers,
        }
        share_fields(scope)
        expected = [value for name, value in headers if name == b"expect"][-1:]
        head = _RequestHead(
            scope,
            keep_alive=minor_version > 0 and self._parser.should_keep_alive(),
            expects_continue=minor_version > 0 and expected != [] and expected[0].lower() == b"100-continue",
            body_bytes=body_bytes,
        )
        if all(name != b"transfer-encoding" for name, _ in headers):
            self._request_head = head
        self._begin(head)
        self._headers = []  # for trailers

    def _begin_whole(self, head: _RequestHead, body: bytes) -> None:
        """Begin the exchange for a request that was received completely."""
        exchange = self._begin(head)
        self._body_left = 0
        exchange.body_arrives(body, ends=True)
        self._read_timeouts.body_ends()

    def _begin(self, head: _RequestHead) -> HttpExchange:
        """Begin the exchange for a head."""
        self._is_head_request = head.scope["method"] == "HEAD"
        exchange = self.exchange = self._unstarted = HttpExchange(
            {**head.scope, "state": self._app_state.copy()},
            self.transport,
            self.flow,
            self._response_sent,
            self._server_state.default_headers,
            keep_alive=head.keep_alive,
            expects_continue=head.expects_continue,
        )
        self._body_left = head.body_bytes
        self._framing = 0
        self._read_timeouts.head_ends(head.body_bytes)
        return exchange

    def _run(self) -> None:
        """Let the application answer a request whose head was received."""
        exchange, self._unstarted = self._unstarted, None
        if exchange is None:
            return
        task = start_eagerly(exchange.run(self._app), self._loop, self._context)
        if task is not None:
            self._server_state.tasks.add(task)
            task.add_done_callback(self._server_state.tasks.discard)

    def on_body(self, body: bytes) -> None:
        """Keep a part of a chunked body. One of stated length does not pass through the parser."""
        self._steps += 1
        self._framing = 0
        self._body_arrives(body)

    def _body_arrives(self, body: bytes) -> None:
        exchange = self.exchange
        assert exchange is not None
        if not exchange.response_complete:
            exchange.body_arrives(body)
            if exchange.body_bytes > HIGH_WATER_BYTES:
                self.flow.pause_reading()

    def on_message_complete(self) -> None:
        """End a message, unless the parser has only left its head to another protocol, or its body is still to come."""
        if not self._parser.should_upgrade() and not self._body_left:
            self._message_ends()

    def _message_ends(self) -> None:
        exchange = self.exchange
        assert exchange is not None
        if not exchange.response_complete:
            exchange.body_ends()
        self._read_timeouts.body_ends()
        if self.flow.read_paused:
            self.flow.resume_reading()  # otherwise a closed connection would not be noticed

    def _fail(self, error: Exception) -> None:
        """Send the error as the response, in turn, and close. If the response has begun, only close."""
        self._read_timeouts.cancel()
        if self.transport.is_closing():
            return
        if self._is_answering():
            self._fault = error
            self.flow.clear()
            return
        exchange = self.exchange if self._read_timeouts.stage is Stage.BODY else None
        if exchange is not None and exchange.response_started and not exchange.response_complete:
            self.transport.abort()
            return
        if exchange is None or not exchange.response_complete:
            self.transport.write(self._problem(error, {} if exchange is None else dict(exchange.scope)))
        if exchange is not None:
            _client_left(exchange)
        self.transport.close()
        self.flow.clear()

    def _problem(self, error: Exception, scope: dict[str, Any]) -> bytes:
        """Return the response to a request that failed, as far as its scope is known."""
        if isinstance(error, httptools.HttpParserError):
            error = MalformedRequestError("not an HTTP/1.1 request")
        if not isinstance(error, RequantError):
            _log.error("Failed to start a request.", exc_info=error)
            error = RequantError(INTERNAL_DETAIL)
        # Without a scope the head could not be parsed, so its X-Request-Id is unknown.
        response = error_response(Request({"type": "http", "headers": (), **scope}), error)
        fields = map(b": ".join, (*response.raw_headers, (b"connection", b"close")))
        body = b"" if self._is_head_request else response.body
        return b"\r\n".join([STATUS_LINE[response.status_code], *fields, b"", body])


def _bound_what_is_unsent(transport: asyncio.Transport) -> None:
    """Make sending wait until the system has accepted all that was written, and bound how much it accepts.

    A response keeps its reservation until then. The system would buffer megabytes for each client that does not read.
    TLS encrypts all that is written at once, and keeps nothing of the response itself.
    """
    if transport.get_extra_info("sslcontext") is None:
        transport.set_write_buffer_limits(0)
    connection = transport.get_extra_info("socket")
    if connection.family in (socket.AF_INET, socket.AF_INET6) and hasattr(socket, "TCP_NOTSENT_LOWAT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)


def _client_left(exchange: HttpExchange) -> None:
    """Stop the work on a request whose client has left."""
    context_of(exchange.scope).client_left = True
    exchange.disconnect()


def _address(transport: asyncio.Transport, end: str) -> tuple[str, int | None] | None:
    """Return one end of a connection, as ASGI has it: host and port, or the path of a Unix socket."""
    address = transport.get_extra_info(end)
    if isinstance(address, tuple):
        return str(address[0]), int(address[1])
    return (address, None) if isinstance(address, str) and address else None


def http_protocol(
    limits: RequestLimits, last_seconds: float = 0.0, budget: MemoryBudget = HttpProtocol.budget
) -> type[HttpProtocol]:
    """Return the protocol class with these limits, of which uvicorn makes one object for each connection.

    `last_seconds`: how long a connection without a request stays open when the service stops.
    """
    members = {"limits": limits, "last_seconds": last_seconds, "budget": budget}
    return type("LimitedHttpProtocol", (HttpProtocol,), members)
