"""A small HTTP server of files, whose faults a test chooses."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class HttpFiles:
    """What is served at `url`, and how. `faults`: statuses of the next answers, with their bodies; 0 hangs up."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    faults: list[tuple[int, bytes]] = field(default_factory=list)
    always: tuple[int, bytes] | None = None
    redirects: dict[str, str] = field(default_factory=dict)
    """Where a path leads to instead."""
    lengths: dict[str, str] = field(default_factory=dict)
    """What is stated of a path instead of its length, before the connection ends."""
    delay: float = 0.0
    """Seconds until an answer begins."""
    drips: str = ""
    """`head` or `body`: of an answer, a byte comes every 20 ms, without end."""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Method, path and range."""
    connections: int = 0
    versions: list[str | None] = field(default_factory=list)
    """The `If-Match` of each request."""


@contextmanager
def serving(served: HttpFiles) -> Iterator[HttpFiles]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            served.connections += 1
            super().setup()

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            served.requests.append((self.command, self.path, asked))
            served.versions.append(self.headers.get("If-Match"))
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = served.faults.pop(0) if served.faults else served.always
            name = self.path.partition("?")[0].removeprefix("/")
            if fault == (0, b""):
                self.close_connection = True
                return
            if fault:
                self._answer(*fault, {})
                return
            time.sleep(served.delay)
            if served.drips:
                self._drip()
                return
            if name in served.redirects:
                self._answer(302, b"", {"Location": served.redirects[name]})
                return
            data = served.files.get(name)
            if data is None:
                self._answer(404, b"", {})
                return
            headers = {"ETag": served.etags[name]} if name in served.etags else {}
            if name in served.lengths:
                headers["Content-Length"] = served.lengths[name]
                self.close_connection = True
            if asked and served.ranges:
                begin, _, end = asked.removeprefix("bytes=").partition("-")
                part = data[int(begin) : int(end) + 1]
                headers["Content-Range"] = f"bytes {begin}-{int(begin) + len(part) - 1}/{len(data)}"
                self._answer(206, part, headers)
            else:
                self._answer(200, data, headers)

        def _drip(self) -> None:
            self.send_response(200)
            self.flush_headers()
            if served.drips == "body":
                self.send_header("Content-Length", "100000")
                self.end_headers()
            self.wfile.flush()
            with suppress(OSError):
                while served.drips:
                    self.wfile.write(b"x: y\r\n" if served.drips == "head" else b"x")
                    self.wfile.flush()
                    time.sleep(0.02)
            self.close_connection = True

        def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815  # the names that http.server calls

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Say nothing of clients that leave."""

    with Server(("127.0.0.1", 0), Handler) as server:
        served.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield served
        finally:
            server.shutdown()
