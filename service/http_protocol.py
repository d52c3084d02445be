"""uvicorn's HTTP/1.1 protocol, with what the service does differently on the wire.

An offer to switch protocols (`Upgrade: h2c`, as Java's HttpClient and `curl --http2` send it) is ignored: RFC 9110
section 7.8 lets a server answer in HTTP/1.1. The parser, though, ends such a message with its head and leaves the rest
to the other protocol; read on, the body would be the next request, and whoever controls a body could write requests.
So the head is parsed once more without its `Upgrade` field, and the body follows it as usual.

What is not HTTP at all, too large in its head or too slow (`service.arrival`) is answered as a problem, like every
other error. Who takes too long to take a reply (`service.departure`) gets no more of it.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from core.errors import LargeHeadError, MalformedRequestError, RequestError
from service.arrival import Arrival, ArrivalLimits
from service.course import client_left
from service.cycle import Cycle
from service.departure import Departure
from service.exchange import common_headers, new_request_id
from service.problems import MEDIA_TYPE, kind_of, problem_text


class HttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 on one connection."""

    limits: ClassVar[ArrivalLimits] = ArrivalLimits()
    last_seconds: ClassVar[float] = 0.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._arrival = Arrival(self.limits, self.loop, self._refuse)
        self._departure = Departure(self.limits.body_seconds, self.loop, lambda: self.transport.abort())

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and give the first head its time."""
        super().connection_made(transport)
        self._arrival.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._arrival.stop()
        self._departure.stop()
        if self.cycle is not None:
            client_left(self.cycle.scope)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End with the reply that is under way, or if there is none, after the last seconds: one may be coming.

        A client that has just connected, or that kept a connection, cannot know that the service stops.
        """
        if self.last_seconds and not _is_busy(self.cycle):
            self.loop.call_later(self.last_seconds, super().shutdown)
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """Wait for a client that does not take its reply as fast as it is made, but not for ever."""
        super().pause_writing()
        self._departure.paused(self.cycle, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Go on: the client has taken what was waiting."""
        self._departure.stop()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket, through as many offers to switch protocols as there are in them."""
        self._unset_keepalive_if_required()
        try:
            self._arrival.received(len(data))
            self._parse(data)
        except RequestError as error:
            self._refuse(error)
        else:
            self._arrival.watch()

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                if self.parser.get_method() == b"CONNECT":
                    raise MalformedRequestError("the method is CONNECT; this is not a proxy") from None
                data = self._head_without_upgrade() + data[offer.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            except httptools.HttpParserCallbackError as error:
                # A callback below found the head too large.
                raise (error.__context__ if isinstance(error.__context__, LargeHeadError) else error) from None
            except httptools.HttpParserError:
                raise MalformedRequestError("what was sent is not a request of HTTP/1.1") from None
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode("ascii")
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._arrival.head_begins()

    def on_url(self, url: bytes) -> None:
        """Take a part of the path and query."""
        self._arrival.head_grows(len(url), 0)
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field, as uvicorn's own does."""
        self._arrival.head_grows(len(name) + len(value), 1)
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Start the request, unless its head will be parsed again."""
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            # uvicorn names its own class in there. The request begins when the loop comes to it.
            self.cycle.__class__ = Cycle
            self._arrival.head_ends(self.headers)

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body as it is where nothing waits before it: uvicorn's own would copy it twice."""
        if self.cycle.body or self.cycle.response_complete:
            super().on_body(body)
            return
        self.cycle.body = body  # type: ignore[assignment]  # receive() makes bytes of it, and then a new bytearray
        if len(body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self.cycle.message_event.set()

    def on_message_complete(self) -> None:
        """End the request's body, unless the parser has only left its head to another protocol."""
        if not self.parser.should_upgrade():
            super().on_message_complete()
            self._arrival.body_ends()

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be parsed, and hang up."""
        self._refuse(MalformedRequestError(msg))

    def _refuse(self, error: RequestError) -> None:
        """Answer with a problem, and hang up. In the middle of a reply only the latter is left to do."""
        self._arrival.stop()
        if self.transport.is_closing():
            return
        if not _in_reply(self.cycle):
            # The head may not have been understood, so its own X-Request-Id is not looked for.
            request_id = new_request_id()
            kind = kind_of(error)
            body = problem_text(kind, error.detail, request_id)
            headers = {
                "content-type": MEDIA_TYPE,
                "content-length": str(len(body)),
                "connection": "close",
                **common_headers({"state": {"request_id": request_id}}),
            }
            lines = [f"{name}: {value}\r\n".encode("ascii") for name, value in headers.items()]
            self.transport.write(b"".join([STATUS_LINE[kind.status], *lines, b"\r\n", body]))
        self.transport.close()


def http_protocol(limits: ArrivalLimits, last_seconds: float = 0.0) -> type[HttpProtocol]:
    """Return the protocol with limits of its own: uvicorn makes one of it for each connection.

    `last_seconds`: how long a connection without a request stays open when the service stops.
    """
    return type("LimitedHttpProtocol", (HttpProtocol,), {"limits": limits, "last_seconds": last_seconds})


def _is_busy(cycle: RequestResponseCycle | None) -> bool:
    """Return whether a request is being served."""
    return cycle is not None and not cycle.response_complete


def _in_reply(cycle: RequestResponseCycle | None) -> bool:
    """Return whether a part of a reply has been sent. There is no cycle before the first request."""
    return cycle is not None and cycle.response_started and not cycle.response_complete
