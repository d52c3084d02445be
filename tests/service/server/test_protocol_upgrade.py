"""Offers to switch to another protocol: ignored, with the body read as a body; and what is not HTTP."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from itertools import product

import pytest

from tests.conftest import Server
from tests.support.cases import sample

UPGRADE = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
WEBSOCKET = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n"
BODY = b'{"text": "f32"}'
LAST = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
SMUGGLED = b"GET /v1/info HTTP/1.1\r\nHost: inner\r\n\r\n"


def post(body: bytes, more: str = UPGRADE, path: str = "/v1/types/parse", *, chunked: bool = False) -> bytes:
    size = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    head = f"POST {path} HTTP/1.1\r\n{more}Host: localhost\r\n{size}\r\nContent-Type: application/json\r\n\r\n".encode()
    return head + (b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body)


def replies(server: Server, *segments: bytes) -> list[tuple[int, bytes]]:
    """Send the segments and a last request, and return the status and body of each reply before that to the last."""
    received = b""
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A server that refuses a segment closes before the last one.
        with contextlib.suppress(ConnectionError):
            for segment in (*segments, LAST):
                connection.sendall(segment)
                time.sleep(0.02)
        while data := connection.recv(65536):
            received += data
    found = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: ([0-9]+)", head)
        assert length is not None
        found.append((int(head[9:12]), rest[: int(length[1])]))
        received = rest[int(length[1]) :]
    return found[:-1] if found[-1] == (200, b'{"live":true}') else found


CUTS = ("one", "head and body", "every 40 bytes")


@pytest.mark.parametrize(
    ("more", "chunked", "cuts"),
    sample(
        list(product([UPGRADE, UPGRADE.lower(), WEBSOCKET], [False, True], ["one", "head and body", "every 40 bytes"])),
        6,
    ),
)
def test_an_offer_is_ignored_and_the_body_is_read(server: Server, more: str, chunked: bool, cuts: str) -> None:
    text = post(BODY, more, chunked=chunked)
    middle = text.index(b"\r\n\r\n") + 4
    segments = {
        "one": [text],
        "head and body": [text[:middle], text[middle:]],
        "every 40 bytes": [text[at : at + 40] for at in range(0, len(text), 40)],
    }[cuts]
    ((status, body),) = replies(server, *segments)
    assert status == 200
    assert json.loads(body)["canonical"] == "f32"


@pytest.mark.parametrize("path", ["/v1/types/parse", "/nope"])
@pytest.mark.parametrize("split", [False, True])
def test_a_body_is_never_a_request(server: Server, path: str, split: bool) -> None:
    text = post(SMUGGLED, path=path)
    middle = text.index(b"\r\n\r\n") + 4
    ((status, body),) = replies(server, *([text[:middle], text[middle:]] if split else [text]))
    assert status == (404 if path == "/nope" else 400)
    assert b"profiles" not in body


def test_offers_in_a_row_on_one_connection(server: Server) -> None:
    offer = f"GET /v1/profiles/onnx HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n".encode()
    found = replies(server, offer + post(BODY) + post(BODY, "") + offer + post(BODY))
    assert [status for status, _ in found] == [200] * 5
    assert found[0][1] == found[3][1]
    assert found[1][1] == found[2][1] == found[4][1]


def test_a_client_that_asks_first_is_told_to_go_on(server: Server) -> None:
    text = post(BODY, f"Expect: 100-continue\r\n{UPGRADE}")
    with server.connect() as connection:
        connection.sendall(text[: -len(BODY)])
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(BODY)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("target", ["example.org:443", "/healthz"])
def test_no_tunnels(server: Server, target: str) -> None:
    text = f"CONNECT {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() + SMUGGLED
    ((status, body),) = replies(server, text)
    assert status == 400
    assert json.loads(body)["code"] == "request_malformed"


@pytest.mark.parametrize(
    "text", [b"not http at all\r\n\r\n", b"GET / HTTP/1.1\r\nA B: c\r\n\r\n", b"\x16\x03\x01\x00\xa5"]
)
def test_what_is_not_http_is_answered_as_a_problem(server: Server, text: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(text)
        head, _, body = connection.recv(65536).partition(b"\r\n\r\n")
        assert connection.recv(1) == b""
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"\r\ncontent-type: application/problem+json\r\n" in head
    problem = json.loads(body)
    assert (problem["code"], problem["status"]) == ("request_malformed", 400)
    assert f"x-request-id: {problem['request_id']}".encode() in head
