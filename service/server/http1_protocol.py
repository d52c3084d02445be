"""uvicorn's HTTP/1.1 protocol, parsing one request at a time.

Pipelined requests stay unparsed until the one ahead of them is answered (`service.server.pending_requests`). So an
error on a connection is always about the request that is being received, never about one whose response is being sent:
the responses come in order, each complete, then the problem, and then the connection closes.

An offer to switch protocols (`Upgrade: h2c`, as Java's HttpClient and `curl --http2` send it) is ignored, as RFC 9110
section 7.8 allows. The parser, though, ends such a message with its head and leaves the rest to the other protocol: the
body would be parsed as the next request, and whoever controls a body could smuggle requests. So the head is parsed
once more without its `Upgrade` field, and the body follows it as usual.

This class builds on parts of uvicorn that are not its public interface; docs/architecture.md lists them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar, cast

import httptools
from starlette.requests import Request
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from core.errors import LargeHeadError, MalformedRequestError, RequantError
from service.http.problems import error_response
from service.runtime.memory_budget import MemoryBudget
from service.runtime.request_context import context_of
from service.server.pending_requests import PendingRequests
from service.server.read_timeouts import ReadTimeouts, RequestLimits, Stage
from service.server.request_head import check_framing, http_minor_version, origin_form, without_upgrade
from service.server.write_timeouts import WriteTimeoutTransport

_log = logging.getLogger("uvicorn.error")

# How many steps of the parser (pieces, header fields, parts of a body) are done before other connections get a turn.
_STEPS = 64
# How large a piece is that holds many steps, and one that holds few. A body of stated length is one step.
_LEAST_PIECE, _MOST_PIECE, _FEW_STEPS = 1 << 10, 16 << 10, 8
# Most empty lines before a request (RFC 9112 section 2.2 asks for one).
_EMPTY_LINES = 8


class HttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 on one connection."""

    limits: ClassVar[RequestLimits] = RequestLimits()
    last_seconds: ClassVar[float] = 0.0
    budget: ClassVar[MemoryBudget] = MemoryBudget(1 << 62, 0, 0.0)

    flow: PendingRequests
    transport: WriteTimeoutTransport
    cycle: RequestResponseCycle | None  # type: ignore[assignment]  # there is none before the first request

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._read_timeouts = ReadTimeouts(self.limits, self.loop, self._fail)
        self._head = bytearray()
        self._body_left = 0
        self._framing = 0
        self._steps = 0
        self._piece_bytes = _LEAST_PIECE
        self._scheduled = False
        self._fault: Exception | None = None
        self._is_head_request = False

    def _set_parser(self) -> None:
        """Use a new parser: nothing of one message may affect the next, as a trailer `Connection: close` would."""
        self.parser = httptools.HttpRequestParser(self)
        # Other versions get answers of their own (`http_minor_version`).
        self.parser.set_dangerous_leniencies(lenient_version=True)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the read timeout of the first head."""
        super().connection_made(transport)
        self.flow = PendingRequests(transport, self.budget)
        self.transport = WriteTimeoutTransport(transport, self.limits.body_seconds, self.loop)
        self._read_timeouts.update()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and the work for a request that nobody waits for any more."""
        self._read_timeouts.cancel()
        self.transport.cancel()
        self.flow.clear()
        if self.cycle is not None:
            _client_left(self.cycle)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close after the current response; without one, after `last_seconds`, in which a request may still come.

        A client that has just connected, or that kept its connection, cannot know that the service stops.
        """
        if self.last_seconds and (self.cycle is None or self.cycle.response_complete):
            self.loop.call_later(self.last_seconds, super().shutdown)
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """Wait for a client that does not read its response, until the write timeout."""
        super().pause_writing()
        self.transport.writing_paused(self.cycle)

    def resume_writing(self) -> None:
        """Go on: the client has read what was buffered."""
        self.transport.writing_resumed()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Receive bytes from the socket."""
        if self.transport.is_closing():
            self.transport.discard(len(data))
        elif self._fault is None:
            self._unset_keepalive_if_required()
            rest = self._parse_whole(data) if self._is_idle() else data
            if rest:
                self.flow.add(rest)
                self._parse_pending()

    def _is_idle(self) -> bool:
        """Return whether the next byte begins a request that can be parsed now."""
        stage = self._read_timeouts.stage
        between = stage is Stage.COMPLETE or stage is Stage.FIRST_HEAD
        return between and not self.flow and not self._scheduled and not self._is_answering()

    def _parse_whole(self, data: bytes) -> bytes:
        """Parse a head that was received in one piece, as most are, and what came with it of a body of stated length.

        Return what follows. It takes a third of the time of `_parse_pending`, which parses everything: 4 % of a small
        request.
        """
        end = data.find(b"\r\n\r\n", 0, _MOST_PIECE) + 4
        if end < 4:
            return data
        view = memoryview(data)
        try:
            self._parse(view[:end])
            if self._body_left:
                begin, end = end, end + self._body_left
                self._parse(view[begin:end])
        except Exception as error:  # whatever it is, the client gets an answer
            self._fail(error)
            return b""
        self._read_timeouts.update()
        return data[end:]

    def on_response_complete(self) -> None:
        """Parse what was received meanwhile, or wait for the next request."""
        self.transport.flush()
        super().on_response_complete()
        if self.transport.is_closing():
            self._unset_keepalive_if_required()
            self.flow.clear()
        elif self._fault is not None:
            self._fail(self._fault)
        elif self.flow:
            self._unset_keepalive_if_required()
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._go_on)

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
                few = self._steps - before < _FEW_STEPS
                self._piece_bytes = min(2 * self._piece_bytes, _MOST_PIECE) if few else _LEAST_PIECE
            self.flow.reserve()
        except Exception as error:  # whatever it is, the client gets an answer
            self._fail(error)
            return
        self._read_timeouts.update()
        if self.flow.read_paused and self._read_timeouts.stage is not Stage.BODY:
            self.flow.resume_reading()

    def _is_answering(self) -> bool:
        """Return whether a complete request was received whose response is not sent yet."""
        return (
            self._read_timeouts.stage is Stage.COMPLETE and self.cycle is not None and not self.cycle.response_complete
        )

    def _parse(self, piece: memoryview) -> None:
        """Parse a piece of one message."""
        self._steps += 1
        if self._body_left:
            self._body_left -= len(piece)
            self._feed(piece)
        elif self._read_timeouts.stage is Stage.BODY:
            self._framing += len(piece)
            self._feed(piece)
            if self._framing > self.limits.framing_bytes:
                raise LargeHeadError("a chunk size line or the trailer section is too long")
        else:
            if self._read_timeouts.stage is not Stage.HEAD:
                self._read_timeouts.head_begins()
                self._head.clear()
                self._is_head_request = False
                self._set_parser()
            room = self.limits.framing_bytes - len(self._head)
            self._head += piece[:room]
            if len(piece) < 3 and self._head.count(b"\n") > _EMPTY_LINES and not self._head.strip(b"\r\n"):
                raise MalformedRequestError(f"there are more than {_EMPTY_LINES} empty lines before a request")
            self._feed(piece[:room])
            if len(piece) > room:
                raise self.limits.too_many_bytes()

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._set_parser()
            self._feed(without_upgrade(self._head))
        except httptools.HttpParserCallbackError as error:
            raise (error.__context__ or error) from None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header field, or a trailer, which is not merged into the fields (RFC 9110 section 6.5)."""
        self._steps += 1
        self.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Start the request, unless its head is not acceptable or will be parsed again."""
        method = self.parser.get_method()
        self._is_head_request = method == b"HEAD"
        if len(self._head) > self.limits.head_bytes or len(self.headers) > self.limits.header_fields:
            self.limits.check_head(self.url, self.headers)
        minor_version = http_minor_version(self._head)
        if method == b"CONNECT":
            raise MalformedRequestError("the method is CONNECT; this is not a proxy")
        body_bytes = check_framing(self.headers, minor_version)
        if self.parser.should_upgrade():
            return
        self.url = origin_form(method, self.url)
        expected = dict(self.headers).get(b"expect")
        self.expect_100_continue = expected is not None and minor_version > 0 and expected.lower() == b"100-continue"
        super().on_headers_complete()
        self.scope["http_version"] = "1.1" if minor_version else "1.0"
        self._body_left = body_bytes
        self._framing = 0
        self._read_timeouts.head_ends(body_bytes)
        self.transport.response_begins()
        self.headers = []  # for trailers

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._steps += 1
        self._framing = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request's body, unless the parser has only left its head to another protocol."""
        if not self.parser.should_upgrade():
            super().on_message_complete()
            self._read_timeouts.body_ends()
            if self.flow.read_paused:
                self.flow.resume_reading()  # otherwise a closed connection would not be noticed

    def _fail(self, error: Exception) -> None:
        """Answer a request with its error, in its turn, and close. In the middle of its response, only close."""
        self._read_timeouts.cancel()
        if self.transport.is_closing():
            return
        if self._is_answering():
            self._fault = error
            self.flow.clear()
            return
        cycle = self.cycle if self._read_timeouts.stage is Stage.BODY else None
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.abort()
            return
        if cycle is None or not cycle.response_complete:
            self.transport.write(self._problem(error, {} if cycle is None else dict(cycle.scope)))
        if cycle is not None:
            # The application sees that its client has left.
            cycle.disconnected = True
            cycle.message_event.set()
            _client_left(cycle)
        self.transport.close()
        self.flow.clear()

    def _problem(self, error: Exception, scope: dict[str, Any]) -> bytes:
        """Return the response to a request that failed, as far as its scope is known."""
        if isinstance(error, httptools.HttpParserError):
            error = MalformedRequestError("what was sent is not a request of HTTP/1.1")
        if not isinstance(error, RequantError):
            _log.error("Failed to start a request.", exc_info=error)
            error = RequantError("unexpected error; the log has the details")
        # Without a scope the head could not be parsed, so its X-Request-Id is unknown.
        response = error_response(Request({"type": "http", "headers": (), **scope}), error)
        lines = [b"%b: %b\r\n" % field for field in (*response.raw_headers, (b"connection", b"close"))]
        body = b"" if self._is_head_request else response.body
        return b"".join([STATUS_LINE[response.status_code], *lines, b"\r\n", body])


def _client_left(cycle: RequestResponseCycle) -> None:
    """Let the work for a request end: nobody waits for its response."""
    context_of(cast(Scope, cycle.scope)).client_left = True


def http_protocol(
    limits: RequestLimits, last_seconds: float = 0.0, budget: MemoryBudget = HttpProtocol.budget
) -> type[HttpProtocol]:
    """Return the protocol class with these limits, of which uvicorn makes one object for each connection.

    `last_seconds`: how long a connection without a request stays open when the service stops.
    """
    members = {"limits": limits, "last_seconds": last_seconds, "budget": budget}
    return type("LimitedHttpProtocol", (HttpProtocol,), members)
