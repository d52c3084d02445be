"""Heads as RFC 9110 and RFC 9112 have them: what the application sees of each, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from requant_service.server.http1_protocol import http_protocol
from requant_service.server.timeouts import RequestLimits
from tests.support.cases import sample


async def mirror(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with what the application sees."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        more = message.get("more_body", False)
    seen = {
        "method": scope["method"],
        "path": scope["path"],
        "query": scope["query_string"].decode(),
        "version": scope["http_version"],
        "headers": {name.decode(): value.decode("latin-1") for name, value in scope["headers"]},
        "body": body.decode("latin-1"),
    }
    text = json.dumps(seen).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


LAST = b"GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def seen(*pieces: bytes, limits: RequestLimits | None = None) -> list[tuple[int, dict[str, Any]]]:
    """Send the pieces and a last request, and return the status and the JSON of each reply before that to the last."""

    async def run() -> bytes:
        config = uvicorn.Config(mirror, http=http_protocol(limits or RequestLimits()), lifespan="off", log_config=None)
        config.load()
        server = await asyncio.get_running_loop().create_server(
            lambda: config.http_protocol_class(config=config, server_state=ServerState(), app_state={}),  # type: ignore[call-arg]
            "127.0.0.1",
            0,
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        received = b""
        try:
            with contextlib.suppress(ConnectionError):
                for piece in (*pieces, LAST):
                    writer.write(piece)
                    await asyncio.sleep(0.002)
            async with asyncio.timeout(20):
                while data := await reader.read(1 << 16):
                    received += data
        finally:
            writer.close()
            server.close()
        return received

    rest, found = asyncio.run(run()).replace(b"HTTP/1.1 100 Continue\r\n\r\n", b""), []
    while rest:
        head, _, rest = rest.partition(b"\r\n\r\n")
        lines = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(lines[b"content-length"])
        assert lines[b"content-type"] in (b"application/json", b"application/problem+json")
        found.append((int(head[9:12]), json.loads(rest[:length])))
        rest = rest[length:]
    # The server closes after the last request, or before it if it refused an earlier one.
    if found[-1][1].get("path") == "/last":
        found.pop()
    else:
        assert found[-1][0] >= 400 or found[-1][1]["version"] == "1.0"
    return found


def request(line: bytes = b"GET / HTTP/1.1", *fields: bytes, host: bytes | None = b"Host: localhost") -> bytes:
    return b"\r\n".join([line, *([] if host is None else [host]), *fields, b"", b""])


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/a?b=c", "/a", "b=c"),
        (b"/a?b?c", "/a", "b?c"),
        (b"//a/b", "//a/b", ""),
        (b"/a%20b", "/a b", ""),
        (b"http://a", "/", ""),
        (b"http://a?b=c", "/", "b=c"),
        (b"HTTP://a:/b", "/b", ""),
        (b"http://a:80/b?c", "/b", "c"),
        (b"https://user@[::1]:8080/b", "/b", ""),
        (b"/?u=http://a", "/", "u=http://a"),
    ],
)
def test_a_target(target: bytes, path: str, query: str) -> None:
    ((status, reply),) = seen(request(b"GET %b HTTP/1.1" % target))
    assert (status, reply["path"], reply["query"]) == (200, path, query)


def test_all_of_the_server_is_its_root() -> None:
    ((status, reply),) = seen(request(b"OPTIONS * HTTP/1.1"))
    assert (status, reply["method"], reply["path"]) == (200, "OPTIONS", "/")


REFUSED = {
    "a port beyond 65535": (request(b"GET http://a:99999999/ HTTP/1.1"), 400),
    "a port of many digits": (request(b"GET http://a:" + b"9" * 5000 + b"/ HTTP/1.1"), 400),
    "a URL without a host": (request(b"GET http://@/ HTTP/1.1"), 400),
    "a bracket without its other": (request(b"GET http://[::1 HTTP/1.1"), 400),
    "a URL of another scheme": (request(b"GET ftp://a/ HTTP/1.1"), 400),
    "an asterisk to get": (request(b"GET * HTTP/1.1"), 400),
    "no Host": (request(host=None), 400),
    "two Hosts": (request(b"GET / HTTP/1.1", b"Host: localhost"), 400),
    "two Hosts in HTTP/1.0": (request(b"GET / HTTP/1.0", b"Host: localhost"), 400),
    "a Host with a path": (request(host=b"Host: a/b"), 400),
    "a Host that is a list": (request(host=b"Host: a, b", line=b"GET / HTTP/1.1").replace(b", ", b" "), 400),
    "a Host with a port of letters": (request(host=b"Host: a:b"), 400),
    "HTTP/2.0": (request(b"GET / HTTP/2.0"), 505),
    "HTTP/3.1": (request(b"GET / HTTP/3.1"), 505),
    "HTTP/0.9": (b"GET /\r\n\r\n", 400),
    "RTSP": (request(b"OPTIONS / RTSP/1.0"), 400),
    "ICE": (request(b"SOURCE / ICE/1.0"), 400),
    "gzip and chunks": (request(b"POST / HTTP/1.1", b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", 501),
    "gzip and chunks in two": (
        request(b"POST / HTTP/1.1", b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
        501,
    ),
    "gzip": (request(b"POST / HTTP/1.1", b"Transfer-Encoding: gzip"), 501),
    "chunks twice": (request(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n", 400),
    "chunks in HTTP/1.0": (request(b"POST / HTTP/1.0", b"Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
    "a length and chunks": (
        request(b"POST / HTTP/1.1", b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
        400,
    ),
    "two lengths": (request(b"POST / HTTP/1.1", b"Content-Length: 5", b"Content-Length: 5") + b"12345", 400),
    "a list of lengths": (request(b"POST / HTTP/1.1", b"Content-Length: 5, 5") + b"12345", 400),
    "a signed length": (request(b"POST / HTTP/1.1", b"Content-Length: +5") + b"12345", 400),
    "an empty length": (request(b"POST / HTTP/1.1", b"Content-Length: ") + b"12345", 400),
    "a length beyond 2^64": (request(b"POST / HTTP/1.1", b"Content-Length: " + b"9" * 30), 400),
    "a folded line": (request(b"GET / HTTP/1.1", b"X: a", b" b"), 400),
    "a NUL in a value": (request(b"GET / HTTP/1.1", b"X: a\x00b"), 400),
    "a lone line feed": (request().replace(b"\r\n", b"\n"), 400),
    "a lone carriage return": (request(b"GET / HTTP/1.1", b"X: a\rb"), 400),
    "a blank before a colon": (request(b"GET / HTTP/1.1", b"X : a"), 400),
    "many empty lines": (b"\r\n" * 9 + request(), 400),
    "a tunnel": (request(b"CONNECT a:443 HTTP/1.1"), 400),
}


@pytest.mark.parametrize(
    ("name", "cut"), [*((name, False) for name in REFUSED), *((name, True) for name in sample(list(REFUSED), 8))]
)
def test_what_is_refused(name: str, cut: bool) -> None:
    """With a problem, once, and nothing after it."""
    sent, status = REFUSED[name]
    sent += request()
    pieces = [sent[at : at + 1] for at in range(40)] + [sent[40:]] if cut else [sent]
    ((found, problem),) = seen(*pieces)
    assert (found, problem["status"]) == (status, status)


@pytest.mark.parametrize(
    "sent",
    [
        request(b"GET / HTTP/1.0", host=None),
        request(b"GET / HTTP/1.0", b"Connection: keep-alive"),
        request(b"GET / HTTP/1.1", host=b"Host:"),
        request(b"GET / HTTP/1.1", host=b"Host: [::1]:80"),
        request(b"GET / HTTP/1.1", host=b"Host: a.example:"),
        request(b"GET / HTTP/1.2"),
        b"\r\n" * 8 + request(),
    ],
)
def test_what_is_taken(sent: bytes) -> None:
    ((status, _),) = seen(sent)
    assert status == 200


def test_later_versions_of_http_1_are_1_1() -> None:
    ((_, reply),) = seen(request(b"GET / HTTP/1.9"))
    assert reply["version"] == "1.1"


def test_blanks_around_a_value_are_no_part_of_it() -> None:
    sent = request(b"POST / HTTP/1.1", b"X:\t a b \t ", b"Content-Length: 5 \t") + b"12345"
    ((status, reply),) = seen(sent)
    assert (status, reply["body"]) == (200, "12345")
    assert reply["headers"]["x"] == "a b"
    assert reply["headers"]["content-length"] == "5"


@pytest.mark.parametrize("zeros", [1, 5000])
def test_a_length_with_leading_zeros(zeros: int) -> None:
    ((status, reply),) = seen(request(b"POST / HTTP/1.1", b"Content-Length: " + b"0" * zeros + b"5") + b"12345")
    assert (status, reply["body"], reply["headers"]["content-length"]) == (200, "12345", "5")


@pytest.mark.parametrize("value", [b"100-continue", b"100-Continue \t"])
def test_a_client_that_asks_first(value: bytes) -> None:
    sent = request(b"POST / HTTP/1.1", b"Content-Length: 5", b"Expect: " + value)
    ((status, reply),) = seen(sent, b"12345")
    assert (status, reply["body"]) == (200, "12345")


TRAILERS = b"Authorization: Bearer token\r\nX-Request-Id: trailer\r\nConnection: close\r\nUpgrade: h2c\r\n"


@pytest.mark.parametrize("cut", [False, True], ids=["at once", "later"])
def test_trailers_are_dropped(cut: bool) -> None:
    head = request(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked", b"Trailer: Authorization")
    end = b"0\r\n" + TRAILERS + b"\r\n"
    pieces = [head, b"5\r\n12345\r\n", end] if cut else [head + b"5\r\n12345\r\n" + end]
    (first, second) = seen(*pieces, request())
    assert (first[0], first[1]["body"]) == (200, "12345")
    assert set(first[1]["headers"]) == {"host", "transfer-encoding", "trailer"}
    assert (second[0], set(second[1]["headers"])) == (200, {"host"})


@pytest.mark.parametrize("end", [b"0\r\n" + b"X: a\r\n" * 30_000, b"0\r\nX: " + b"a" * 100_000, b"1;" + b"a" * 100_000])
def test_what_is_around_a_body_is_bounded(end: bytes) -> None:
    head = request(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked")
    ((status, problem),) = seen(head + b"5\r\n12345\r\n" + end)
    assert (status, problem["code"]) == (431, "head_too_large")


def test_an_unexpected_failure_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("requant_service.server.http1_protocol.check_framing", fail)
    ((status, problem),) = seen(request())
    assert (status, problem["code"]) == (500, "internal_error")


def test_a_problem_for_head_has_no_body() -> None:
    async def run() -> bytes:
        config = uvicorn.Config(mirror, http=http_protocol(RequestLimits()), lifespan="off", log_config=None)
        config.load()
        server = await asyncio.get_running_loop().create_server(
            lambda: config.http_protocol_class(config=config, server_state=ServerState(), app_state={}),  # type: ignore[call-arg]
            "127.0.0.1",
            0,
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(request(b"HEAD / HTTP/1.1", host=None))
        received = await reader.read()
        writer.close()
        server.close()
        return received

    received = asyncio.run(run())
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.endswith(b"\r\n\r\n")
