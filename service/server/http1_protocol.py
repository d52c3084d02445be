"""uvicorn's HTTP/1.1 protocol, one request at a time.

What is sent before the request ahead of it is answered stays unparsed (`service.server.backlog`). So whatever is found
wrong on a connection is about the request that is arriving, and never about one whose reply is under way: the replies
come in order, each whole, then the problem, and then the connection closes.

An offer to switch protocols (`Upgrade: h2c`, as Java's HttpClient and `curl --http2` send it) is ignored: RFC 9110
section 7.8 lets a server answer in HTTP/1.1. The parser, though, ends such a message with its head and leaves the rest
to the other protocol; read on, the body would be the next request, and whoever controls a body could write requests.
So the head is parsed once more without its `Upgrade` field, and the body follows it as usual.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar

import httptools
from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from core.errors import LargeHeadError, MalformedRequestError, RequantError
from service.http.problems import requant_problem
from service.runtime.memory_budget import Admission
from service.runtime.request_context import client_left
from service.server.backlog import Backlog
from service.server.read_timeouts import Arrival, ArrivalLimits, Stage
from service.server.request_head import check_framing, http_minor_version, origin_form, without_upgrade
from service.server.write_timeouts import Departure

_log = logging.getLogger("uvicorn.error")

# How many steps of the parser (pieces, header fields, parts of a body) the loop waits for.
_STEPS = 64
# How large a piece is that holds many steps, and one that holds few. A body of stated length is one step.
_LEAST_PIECE, _MOST_PIECE, _FEW_STEPS = 1 << 10, 16 << 10, 8
# Most empty lines before a request (RFC 9112 section 2.2 asks for one).
_EMPTY_LINES = 8


class HttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 on one connection."""

    limits: ClassVar[ArrivalLimits] = ArrivalLimits()
    last_seconds: ClassVar[float] = 0.0
    admission: ClassVar[Admission] = Admission(1 << 62, 0, 0.0)

    flow: Backlog
    transport: Departure
    cycle: RequestResponseCycle | None  # type: ignore[assignment]  # there is none before the first request

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._arrival = Arrival(self.limits, self.loop, self._fail)
        self._head = bytearray()
        self._body_left = 0
        self._framing = 0
        self._steps = 0
        self._piece_bytes = _LEAST_PIECE
        self._scheduled = False
        self._fault: Exception | None = None
        self._is_head_request = False
        self._most_fields = self.limits.header_fields

    def _set_parser(self) -> None:
        """Begin anew: nothing of one message is to decide about the next, as a trailer `Connection: close` would."""
        self.parser = httptools.HttpRequestParser(self)
        # Versions are looked at here, so that each gets its own answer.
        self.parser.set_dangerous_leniencies(lenient_version=True)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and give the first head its time."""
        super().connection_made(transport)
        self.flow = Backlog(transport, self.admission)
        self.transport = Departure(transport, self.limits.body_seconds, self.loop)
        self._arrival.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._arrival.stop()
        self.transport.stop()
        self.flow.drop()
        if self.cycle is not None:
            client_left(self.cycle.scope)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End with the reply that is under way, or if there is none, after the last seconds: one may be coming.

        A client that has just connected, or that kept a connection, cannot know that the service stops.
        """
        if self.last_seconds and (self.cycle is None or self.cycle.response_complete):
            self.loop.call_later(self.last_seconds, super().shutdown)
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """Wait for a client that does not take its reply as fast as it is made, but not for ever."""
        super().pause_writing()
        self.transport.paused(self.cycle)

    def resume_writing(self) -> None:
        """Go on: the client has taken what was waiting."""
        self.transport.resumed()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket."""
        if self.transport.is_closing():
            self.transport.drop(len(data))
        elif self._fault is None:
            self._unset_keepalive_if_required()
            rest = self._parse_at_once(data) if self._is_idle() else data
            if rest:
                self.flow.add(rest)
                self._advance()

    def _is_idle(self) -> bool:
        """Return whether what comes next begins a request that can be parsed now."""
        stage = self._arrival.stage
        between = stage is Stage.NOTHING or stage is Stage.FIRST_HEAD
        return between and not self.flow and not self._scheduled and not self._is_answering()

    def _parse_at_once(self, data: bytes) -> bytes:
        """Parse a head that came in one piece, as most do, and what came with it of a body of stated length.

        Return what comes after them. It takes a third of the time of `_advance`, which takes everything.
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
        self._arrival.watch()
        return data[end:]

    def on_response_complete(self) -> None:
        """Look at what was sent meanwhile, or wait for the next request."""
        self.transport.flush()
        super().on_response_complete()
        if self.transport.is_closing():
            self._unset_keepalive_if_required()
            self.flow.drop()
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
            self._advance()

    def _advance(self) -> None:
        """Parse what has come, but nothing beyond a request that is not answered yet, and not all of it at once."""
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
            self.flow.settle()
        except Exception as error:  # whatever it is, the client gets an answer
            self._fail(error)
            return
        self._arrival.watch()
        if self.flow.read_paused and self._arrival.stage is not Stage.BODY:
            self.flow.resume_reading()

    def _is_answering(self) -> bool:
        """Return whether a request has arrived whose reply has not left."""
        return self._arrival.stage is Stage.NOTHING and self.cycle is not None and not self.cycle.response_complete

    def _parse(self, piece: memoryview) -> None:
        """Parse a piece of one message."""
        self._steps += 1
        if self._body_left:
            self._body_left -= len(piece)
            self._feed(piece)
        elif self._arrival.stage is Stage.BODY:
            self._framing += len(piece)
            self._feed(piece)
            if self._framing > self.limits.framing_bytes:
                raise LargeHeadError("a chunk size line or the trailer section is too long")
        else:
            if self._arrival.stage is not Stage.HEAD:
                self._arrival.head_begins()
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
        """Take a header field, or a trailer, which is none (RFC 9110 section 6.5): nobody looks for it."""
        self._steps += 1
        self.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Start the request, unless its head is not acceptable or will be parsed again."""
        method = self.parser.get_method()
        self._is_head_request = method == b"HEAD"
        if len(self._head) > self.limits.head_bytes or len(self.headers) > self._most_fields:
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
        self._arrival.head_ends(body_bytes)
        self.transport.reply_begins()
        self.headers = []  # for trailers

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body. Added to `b""` it is not copied, added to a bytearray nothing else is."""
        self._steps += 1
        self._framing = 0
        cycle: Any = self.cycle  # which came with the head, and to which the body is always a bytearray
        if not cycle.body:
            cycle.body = b""
        elif isinstance(cycle.body, bytes):
            cycle.body = bytearray(cycle.body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request's body, unless the parser has only left its head to another protocol."""
        if not self.parser.should_upgrade():
            super().on_message_complete()
            self._arrival.body_ends()
            if self.flow.read_paused:
                self.flow.resume_reading()  # only who reads sees that the client leaves

    def _fail(self, error: Exception) -> None:
        """Answer what cannot be taken, in its turn, and hang up. In the middle of its reply only the latter is left."""
        self._arrival.stop()
        if self.transport.is_closing():
            return
        if self._is_answering():
            self._fault = error
            self.flow.drop()
            return
        cycle = self.cycle if self._arrival.stage is Stage.BODY else None
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.abort()
            return
        if cycle is None or not cycle.response_complete:
            self.transport.write(self._problem(error, {} if cycle is None else dict(cycle.scope)))
        if cycle is not None:
            # For the application, its client has left.
            cycle.disconnected = True
            cycle.message_event.set()
            client_left(cycle.scope)
        self.transport.close()
        self.flow.drop()

    def _problem(self, error: Exception, scope: dict[str, Any]) -> bytes:
        """Return the reply that says what is wrong with a request, as far as its scope is known."""
        if isinstance(error, httptools.HttpParserError):
            error = MalformedRequestError("what was sent is not a request of HTTP/1.1")
        if not isinstance(error, RequantError):
            _log.error("Failed to start a request.", exc_info=error)
            error = RequantError("unexpected error; the log has the details")
        # Without a scope, the head may not have been understood: its own X-Request-Id is not looked for.
        reply = requant_problem(Request({"type": "http", "headers": (), **scope}), error)
        lines = [b"%b: %b\r\n" % field for field in (*reply.raw_headers, (b"connection", b"close"))]
        body = b"" if self._is_head_request else reply.body
        return b"".join([STATUS_LINE[reply.status_code], *lines, b"\r\n", body])


def http_protocol(
    limits: ArrivalLimits, last_seconds: float = 0.0, admission: Admission = HttpProtocol.admission
) -> type[HttpProtocol]:
    """Return the protocol with limits of its own: uvicorn makes one of it for each connection.

    `last_seconds`: how long a connection without a request stays open when the service stops.
    """
    members = {"limits": limits, "last_seconds": last_seconds, "admission": admission}
    return type("LimitedHttpProtocol", (HttpProtocol,), members)
