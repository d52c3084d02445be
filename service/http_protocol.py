"""uvicorn's HTTP/1.1 protocol, with what the service does differently on the wire.

An offer to switch protocols (`Upgrade: h2c`, as Java's HttpClient and `curl --http2` send it) is ignored: RFC 9110
section 7.8 lets a server answer in HTTP/1.1. The parser, though, ends such a message with its head and leaves the rest
to the other protocol; read on, the body would be the next request, and whoever controls a body could write requests.
So the head is parsed once more without its `Upgrade` field, and the body follows it as usual.

What is not HTTP at all is answered as a problem, like every other error.
"""

from __future__ import annotations

import uuid

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from core.errors import MalformedRequestError
from service.middleware import common_headers
from service.problems import MEDIA_TYPE, kind_of, problem_text


class HttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 on one connection."""

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket, through as many offers to switch protocols as there are in them."""
        self._unset_keepalive_if_required()
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                if self.parser.get_method() == b"CONNECT":
                    self.send_400_response("the method is CONNECT; this is not a proxy")
                    return
                data = self._head_without_upgrade() + data[offer.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            except httptools.HttpParserError:
                self.send_400_response("what was sent is not a request of HTTP/1.1")
                return
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode("ascii")
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_headers_complete(self) -> None:
        """Start the request, unless its head will be parsed again."""
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the request's body, unless the parser has only left its head to another protocol."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be parsed, and hang up. In the middle of a reply only the latter is left to do."""
        if not _in_reply(self.cycle):
            # The head may not have been understood, so its own X-Request-Id is not looked for.
            request_id = uuid.uuid4().hex
            body = problem_text(kind_of(MalformedRequestError(msg)), msg, request_id)
            headers = {
                "content-type": MEDIA_TYPE,
                "content-length": str(len(body)),
                "connection": "close",
                **common_headers({"state": {"request_id": request_id}}),
            }
            lines = [f"{name}: {value}\r\n".encode("ascii") for name, value in headers.items()]
            self.transport.write(b"".join([STATUS_LINE[400], *lines, b"\r\n", body]))
        self.transport.close()


def _in_reply(cycle: RequestResponseCycle | None) -> bool:
    """Return whether a part of a reply has been sent. There is no cycle before the first request."""
    return cycle is not None and cycle.response_started and not cycle.response_complete
