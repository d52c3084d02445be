"""An HTTP server of storage that answers as it should not: not at all, a byte at a time, with lengths that are lies.

It is a process of its own, so that it takes nothing from the service that is measured.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
Send = Callable[[bytes], None]
_TRICKLE_SECONDS = 0.2
_HEAD = b'HTTP/1.1 200 OK\r\nETag: "1"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n'
_PARTIAL = _HEAD.replace(b"200 OK", b"206 Partial Content")


class HostileServer:
    """A server on loopback. The first segment of a path is one of `MODES`."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._open: set[socket.socket] = set()
        self._closed = threading.Event()
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        for each in (self._listening, *tuple(self._open)):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            head = b""
            while b"\r\n\r\n" not in head:
                received = connection.recv(1 << 16)
                if not received:
                    return
                head += received
            method, path = head.decode("latin-1").split(" ", 2)[:2]
            MODES[path.split("/")[1]](self, connection.sendall, method, head)
        self._open.discard(connection)

    def wait(self, seconds: float = 1e6) -> None:
        """Wait, and hang up at the end of the server."""
        if self._closed.wait(seconds):
            raise OSError


def _silent(server: HostileServer, send: Send, method: str, head: bytes) -> None:
    server.wait()


def _trickled_head(server: HostileServer, send: Send, method: str, head: bytes) -> None:
    send(_HEAD)
    while True:
        send(b"X: y\r\n")
        server.wait(_TRICKLE_SECONDS)


def _trickled_body(server: HostileServer, send: Send, method: str, head: bytes) -> None:
    send(_HEAD + b"Content-Length: 100000\r\n\r\n")
    while method == "GET":
        send(b"{")
        server.wait(_TRICKLE_SECONDS)


def _stalled_body(server: HostileServer, send: Send, method: str, head: bytes) -> None:
    send(_HEAD + b"Content-Length: 100000\r\n\r\n{")
    server.wait()


def _cut_body(server: HostileServer, send: Send, method: str, head: bytes) -> None:
    send(_HEAD + b"Content-Length: 100\r\n\r\n{}")


def _endless_body(server: HostileServer, send: Send, method: str, head: bytes) -> None:
    """Says that a file is small, and sends without an end."""
    partial = b"range:" in head.lower()
    stated = b"Content-Range: bytes 0-7/1000\r\n" if partial else b""
    length = b"Content-Length: 1000\r\n" if method == "HEAD" else b"Transfer-Encoding: chunked\r\n"
    send((_PARTIAL if partial else _HEAD) + stated + length + b"\r\n")
    while method == "GET":
        send(b"10000\r\n" + b" " * 0x10000 + b"\r\n")


def _huge_lengths(server: HostileServer, send: Send, method: str, head: bytes) -> None:
    send(_HEAD + b"Content-Length: %d\r\n\r\n" % (1 << 62))
    if method == "GET":
        send(b"{}")


def _wrong_lengths(server: HostileServer, send: Send, method: str, head: bytes) -> None:
    send(_HEAD + b"Content-Length: -1\r\nContent-Length: 2\r\n\r\n{}")


def _no_http(server: HostileServer, send: Send, method: str, head: bytes) -> None:
    send(b"\x00\xff" * 1000)


def _nothing(server: HostileServer, send: Send, method: str, head: bytes) -> None:
    pass


def _circle(server: HostileServer, send: Send, method: str, head: bytes) -> None:
    path = head.split(b" ", 2)[1]
    send(b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % path)


def _brackets(server: HostileServer, send: Send, method: str, head: bytes) -> None:
    """An index and a config.json that are small and nothing but brackets."""
    body = b'{"weight_map":' + b"[" * 500_000
    send(_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + (body if method == "GET" else b""))


MODES: dict[str, Callable[[HostileServer, Send, str, bytes], None]] = {
    "silent": _silent,
    "trickled-head": _trickled_head,
    "trickled-body": _trickled_body,
    "stalled-body": _stalled_body,
    "cut-body": _cut_body,
    "endless-body": _endless_body,
    "huge-lengths": _huge_lengths,
    "wrong-lengths": _wrong_lengths,
    "no-http": _no_http,
    "nothing": _nothing,
    "circle": _circle,
    "brackets": _brackets,
}


@contextmanager
def hostile_server() -> Iterator[str]:
    """Yield the URL of a server."""
    command = [sys.executable, "-m", "tests.checkpoint_jobs.hostile_server"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def main() -> None:
    """Serve until the other end of the input is closed."""
    # On a machine of its own it would take no CPU time from the service.
    os.nice(19)
    server = HostileServer()
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.close()


if __name__ == "__main__":
    main()
