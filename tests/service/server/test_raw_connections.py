"""What HTTP clients do not send: cut bodies, clients that vanish, lengths that lie. The server answers or hangs up."""

from __future__ import annotations

import http.client
import io
import itertools
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import httpx
import numpy as np
import pytest

from tests.conftest import Server
from tests.support.cases import sample

PATH = "/v1/npy/quantize?output_type=%21quant.uniform%3Ci8%3Af32%2C0.5%3E"


def npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


FILE = npy(np.arange(64, dtype=np.float32))


@pytest.fixture(autouse=True)
def the_server_stays_up(client: httpx.Client) -> Iterator[None]:
    yield
    reply = client.post(PATH, content=FILE)
    assert reply.status_code == 200
    assert np.load(io.BytesIO(reply.content)).tolist() == np.minimum(np.arange(64) * 2, 127).tolist()


def head(length: int | None, *more: str) -> bytes:
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return "\r\n".join([f"POST {PATH} HTTP/1.1", "Host: localhost", size, *more, "", ""]).encode()


def read_reply(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Read one reply with a Content-Length."""
    received = b""
    while b"\r\n\r\n" not in received:
        data = connection.recv(65536)
        assert data, received
        received += data
    start, _, body = received.partition(b"\r\n\r\n")
    lines = start.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    while len(body) < int(headers.get("content-length", 0)):
        data = connection.recv(65536)
        assert data
        body += data
    return int(lines[0].split()[1]), headers, body


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [0, 5, 60, 128, 200, len(FILE) - 1])
def test_a_body_that_is_cut(server: Server, sent: int) -> None:
    with server.connect() as connection:
        connection.sendall(head(len(FILE)) + FILE[:sent])
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


@pytest.mark.parametrize("sent", [0, 200])
def test_a_client_that_vanishes(server: Server, sent: int) -> None:
    for length in (len(FILE), None):
        connection = server.connect()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close with a reset
        connection.sendall(head(length) + FILE[:sent])
        connection.close()


def test_a_client_that_does_not_read(server: Server) -> None:
    file = npy(np.zeros(4 << 20, np.float32))
    connection = server.connect()
    connection.sendall(head(len(file)) + file)
    connection.close()


def test_a_declared_length_over_the_limit_is_answered_before_the_body(server: Server) -> None:
    for more in ((), ("Expect: 100-continue",)):
        with server.connect() as connection:
            connection.sendall(head(1 << 40, *more))
            status, headers, body = read_reply(connection)
            assert status == 413
            assert headers["connection"] == "close"
            assert b'"limit":67108864' in body
            assert is_closed(connection)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_sends_everything_first_still_reads_the_refusal(server: Server, chunked: bool) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    size = (64 << 20) + 1
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,)}"
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    try:
        pieces = itertools.chain([start], itertools.repeat(b"\0" * (1 << 20), 65))
        connection.request("POST", PATH, body=pieces if chunked else b"\0" * size)
        reply = connection.getresponse()
        assert reply.status == 413
        assert reply.headers["connection"] == "close"
        assert b'"limit":67108864' in reply.read()
    finally:
        connection.close()


def test_a_client_that_asks_first_is_told_to_go_on(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(head(len(FILE), "Expect: 100-continue"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(FILE)
        assert read_reply(connection)[0] == 200


def test_a_wrong_query_is_answered_before_the_body_is_asked_for(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(head(len(FILE), "Expect: 100-continue").replace(b"output_type", b"output"))
        assert read_reply(connection)[0] == 422


def test_an_early_refusal_leaves_the_connection_usable(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(head(len(FILE)).replace(b"output_type", b"output") + FILE)
        assert read_reply(connection)[0] == 422
        connection.sendall(head(len(FILE)) + FILE)
        assert read_reply(connection)[0] == 200


REFUSED_EARLY = {
    "no such path": b"POST /nope HTTP/1.1",
    "no such method": b"PUT /v1/quantize HTTP/1.1",
    "a wrong query": b"POST /v1/npy/quantize?output=f32 HTTP/1.1",
    "a query where there is none": b"POST /v1/quantize?a=b HTTP/1.1",
    "another media type": b"POST /v1/quantize HTTP/1.1\r\nContent-Type: text/plain",
    "a route that reads no body": b"GET /healthz HTTP/1.1",
}


@pytest.mark.parametrize(("chunked", "name"), sample(list(itertools.product([False, True], REFUSED_EARLY)), 4))
def test_a_body_that_nobody_reads_is_not_taken_without_end(server: Server, name: str, chunked: bool) -> None:
    size = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 1099511627776"
    data = b"\0" * (1 << 20)
    piece = chunk(data) if chunked else data
    with server.connect() as connection:
        connection.sendall(REFUSED_EARLY[name] + b"\r\nHost: localhost\r\n" + size + b"\r\n\r\n")
        sent = 0
        try:
            while sent < 600:
                connection.sendall(piece)
                sent += 1
        except OSError:
            pass  # the server has hung up
        assert sent < 600


@pytest.mark.parametrize("name", REFUSED_EARLY)
def test_a_refusal_that_comes_before_a_long_body_says_that_it_is_the_last(server: Server, name: str) -> None:
    size = 8 << 20
    with server.connect() as connection:
        connection.sendall(REFUSED_EARLY[name] + f"\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode())
        connection.sendall(b"\0" * size)
        _, headers, _ = read_reply(connection)
        assert headers["connection"] == "close"
        assert is_closed(connection)


@pytest.mark.parametrize("name", REFUSED_EARLY)
def test_a_refusal_that_comes_before_a_short_body_leaves_the_connection_usable(server: Server, name: str) -> None:
    with server.connect() as connection:
        for _ in range(2):
            connection.sendall(
                REFUSED_EARLY[name] + b"\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n" + b"\0" * 1000
            )
            _, headers, _ = read_reply(connection)
            assert "connection" not in headers


def test_two_requests_at_once_on_one_connection(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall((head(len(FILE)) + FILE) * 2)
        received = b""
        while received.count(FILE[:6]) < 2 or not received.endswith(bytes([124, 126])):
            received += connection.recv(65536)
        assert received.count(b"HTTP/1.1 200 ") == 2


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_chunks_of_one_byte(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(head(None) + b"".join(chunk(FILE[at : at + 1]) for at in range(len(FILE))) + chunk(b""))
        assert read_reply(connection)[0] == 200


def test_chunks_that_promise_more_than_the_limit(server: Server) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000,)}"
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with server.connect() as connection:
        connection.sendall(head(None) + chunk(start + b"\0" * 1000) + chunk(b""))
        status, headers, body = read_reply(connection)
        # The body was read to its end, so the connection goes on.
        assert (status, "connection" in headers) == (400, False)
        assert b"4000000000" in body


def test_chunks_without_end_are_cut_off(server: Server) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,)}"
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    piece = chunk(b"\0" * (1 << 20))
    with server.connect() as connection:
        connection.sendall(head(None) + chunk(start))
        sent = 0
        try:
            while sent < 600:  # far more than the limit and what is dropped after it
                connection.sendall(piece)
                sent += 1
        except OSError:
            pass  # the server has hung up
        assert 60 <= sent < 600


@pytest.mark.parametrize(
    "request_text",
    [
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"not http at all\r\n\r\n",
        b"\x00\x01\x02\x03",
    ],
)
def test_what_is_not_http_is_refused(server: Server, request_text: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(request_text)
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
        assert is_closed(connection)


def test_a_broken_chunk_ends_the_connection(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(head(None) + chunk(FILE[:50]) + b"zzz\r\n")
        while connection.recv(65536):
            pass


def test_more_bytes_than_declared_are_not_part_of_the_body(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(head(len(FILE)) + FILE + b"GARBAGE")
        assert read_reply(connection)[0] in (200, 400)


def test_a_body_that_never_comes_holds_up_nobody(server: Server, client: httpx.Client) -> None:
    waiting = [server.connect() for _ in range(20)]
    try:
        for connection in waiting:
            connection.sendall(head(len(FILE)) + FILE[:100])
        assert client.get("/healthz").status_code == 200
        assert client.post(PATH, content=FILE).status_code == 200
        for connection in waiting:
            connection.sendall(FILE[100:])
        assert [read_reply(connection)[0] for connection in waiting] == [200] * 20
    finally:
        for connection in waiting:
            connection.close()


def test_probes_are_answered_while_large_tensors_are_converted(server: Server, client: httpx.Client) -> None:
    file = npy(np.arange(8 << 20, dtype=np.float32))
    done = threading.Event()

    def convert() -> int:
        return httpx.post(server.url + PATH, content=file, timeout=120).status_code

    with ThreadPoolExecutor(8) as pool:
        replies = [pool.submit(convert) for _ in range(6)]
        wait_for_all = pool.submit(wait, replies)
        wait_for_all.add_done_callback(lambda _: done.set())
        probes = 0
        while not done.is_set():
            assert client.get("/healthz").status_code == 200
            probes += 1
    assert [reply.result() for reply in replies] == [200] * 6
    assert probes > 0
