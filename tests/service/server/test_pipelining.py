"""Requests sent before earlier ones are answered: replies in order, each whole, and a fault after all before it."""

from __future__ import annotations

import re
import socket
import time

import numpy as np
import pytest

from tests.conftest import Server
from tests.service.server.test_raw_connections import FILE, head, npy
from tests.support.cases import EXHAUSTIVE, sample

INPUT_TYPE = "%21quant.uniform%3Ci8%3Af32%2C0.5%3E"
DEQUANTIZE = f"/v1/npy/dequantize?input_type={INPUT_TYPE}"
ELEMENTS = 3_000_000
MANY = 500 if EXHAUSTIVE else 100
GOOD = head(len(FILE)) + FILE
GET = b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n"

FAULTS = {
    "not HTTP": (b"GET ...\r\n\r\n", 400),
    "no HTTP, and nothing after it": (b"\x16\x03\x01\x00\xa5", 400),
    "a large head": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", 431),
    "two lengths": (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "a broken chunk": (head(None) + b"zz\r\n", 400),
    "a tunnel": (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 400),
}


def replies(received: bytes) -> list[tuple[int, bytes]]:
    """The statuses and bodies of replies that have a Content-Length. All bytes have to belong to one of them."""
    found = []
    while received:
        start, separator, rest = received.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: ([0-9]+)", start)
        assert separator, start[:1000]
        assert length is not None, start[:1000]
        size = int(length[1])
        assert len(rest) >= size, (start, len(rest))
        found.append((int(start[9:12]), rest[:size]))
        received = rest[size:]
    return found


def narrow(server: Server) -> socket.socket:
    """A connection that takes little before it is read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", server.port))
    return connection


def all_of(connection: socket.socket, pause: float = 0.0) -> bytes:
    received = bytearray()
    while data := connection.recv(1 << 18):
        received += data
        time.sleep(pause)
    return bytes(received)


def large_request() -> tuple[bytes, bytes]:
    stored = np.arange(ELEMENTS, dtype=np.int32).astype(np.int8)
    file = npy(stored)
    size = f"Content-Length: {len(file)}"
    start = f"POST {DEQUANTIZE} HTTP/1.1\r\nHost: localhost\r\n{size}\r\n\r\n".encode()
    return start + file, npy(stored.astype(np.float32) * np.float32(0.5))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sample(list(FAULTS), 2))
def test_a_fault_leaves_the_large_reply_before_it_whole(server: Server, name: str) -> None:
    fault, status = FAULTS[name]
    request, expected = large_request()
    with narrow(server) as connection:
        connection.sendall(request[:-10])
        time.sleep(0.3)
        connection.sendall(request[-10:])  # a small last part: the server reads on
        first = connection.recv(1000)  # the reply has begun, and most of it has no room
        time.sleep(0.1)
        connection.sendall(GET + fault)
        time.sleep(0.2)
        found = replies(first + all_of(connection, 1e-3))
    body = found[0][1]
    assert (found[0][0], len(body)) == (200, len(expected))
    assert np.count_nonzero(np.frombuffer(body, np.uint8) != np.frombuffer(expected, np.uint8)) == 0
    assert [status for status, _ in found] == [200, 200, status]


@pytest.mark.parametrize("name", FAULTS)
def test_requests_before_a_fault_are_answered(server: Server, name: str) -> None:
    fault, status = FAULTS[name]
    with server.connect() as connection:
        connection.sendall(GOOD * 3 + GET + fault)
        found = replies(all_of(connection))
    assert [status for status, _ in found] == [200, 200, 200, 200, status]


def test_nothing_is_answered_after_a_fault(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(GOOD + b"GET ...\r\n\r\n" + GOOD)
        found = replies(all_of(connection))
    assert [status for status, _ in found] == [200, 400]


def test_nothing_is_answered_after_the_last_request(server: Server) -> None:
    last = GET.replace(b"Host", b"Connection: close\r\nHost")
    with server.connect() as connection:
        connection.sendall(GOOD + last + GOOD)
        found = replies(all_of(connection))
    assert [status for status, _ in found] == [200, 200]


def test_a_burst_is_answered_in_order(server: Server) -> None:
    paths = [f"/v1/profiles/{name}" for name in ("onnx", "torch", "nope", "litert")] * MANY
    burst = "".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n" for path in paths).encode()
    with server.connect() as connection:
        connection.sendall(burst + GET.replace(b"Host", b"Connection: close\r\nHost"))
        found = replies(all_of(connection))
    assert [status for status, _ in found] == [200, 200, 404, 200] * MANY + [200]
    assert len({re.sub(rb'"request_id":"[0-9a-f]+"', b"", body) for _, body in found}) == 5


@pytest.mark.exhaustive
def test_a_probe_is_answered_beside_bursts(server: Server) -> None:
    """100 connections send 240 KB of requests each, and read nothing. One that reads shows how busy the machine is."""
    burst = GET * (240_000 // len(GET))
    began = time.monotonic()
    with server.connect() as connection:
        connection.sendall(burst + GET.replace(b"Host", b"Connection: close\r\nHost"))
        all_of(connection)
    alone = time.monotonic() - began
    attackers = [server.connect() for _ in range(100)]
    try:
        for attacker in attackers:
            attacker.setblocking(False)
            attacker.send(burst)
        for _ in range(3):
            began = time.monotonic()
            with server.connect() as probe:
                probe.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert probe.recv(100).startswith(b"HTTP/1.1 200 ")
            assert time.monotonic() - began < max(5, 5 * alone)
    finally:
        for attacker in attackers:
            attacker.close()
