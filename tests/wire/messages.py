"""Random requests for the fuzz of the wire: whole ones, and what can only be the last on a connection.

Left out is what depends on time alone: a body that is refused while it arrives, where the reply says whether the
connection stays, and a body that breaks off after its reply has begun.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from tests.hostile.attacks import NPY
from tests.service.server.test_pipelining import DEQUANTIZE
from tests.service.server.test_raw_connections import npy

PARSE = "/v1/types/parse"
LAST = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

_PATHS = (
    "/v1/info",
    "/v1/profiles/onnx",
    "/v1/profiles/nothing",
    "/nothing",
    "/v2",
    "/v2/health/live",
    "/problems/npy",
)
_TARGETS = ("", "", "", "http://test", "http://test:8080", "https://user@[::1]:1")
_TYPES = ("f32", "tensor<2xf32>", "!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i8:f32, 0.5:300>", "tensor<", "é", "")
_UPGRADES = ("Connection: Upgrade\r\nUpgrade: h2c", "upgrade: websocket\r\nconnection: keep-alive, upgrade")
_LONGEST_LARGE = 1_150_000


@dataclass(frozen=True)
class Message:
    """What is sent. `method` says whether the reply has a body."""

    method: str
    sent: bytes


def _case(rng: Random, name: str) -> str:
    return rng.choice((name, name.lower(), name.upper()))


def _blank(rng: Random) -> str:
    return "".join(rng.choices(" \t", k=rng.choice((0, 0, 1, 3))))


def _head(rng: Random, method: str, path: str, *fields: tuple[str, str]) -> bytes:
    """The head of a valid request, in one of the ways in which it can be written."""
    lines = [("Host", rng.choice(("localhost", "localhost:80", "[::1]", "127.0.0.1"))), *fields]
    if rng.random() < 0.2:
        lines.append(("X-Request-Id", f"given-{rng.getrandbits(32)}"))
    lines += [(f"X-{rng.getrandbits(8)}", "a" * rng.randrange(40)) for _ in range(rng.randrange(4))]
    if rng.random() < 0.01:
        lines.append(("X-Long", "b" * rng.randrange(20_000)))
    rng.shuffle(lines)
    texts = [f"{_case(rng, name)}:{_blank(rng)}{value}{_blank(rng)}" for name, value in lines]
    if rng.random() < 0.1:
        texts.insert(rng.randrange(len(texts) + 1), rng.choice(_UPGRADES))
    target = path if rng.random() < 0.9 else rng.choice(_TARGETS) + path
    version = rng.choice(("1.1", "1.1", "1.1", "1.2"))
    before = "\r\n" * rng.choice((0, 0, 0, 0, 1, 8))
    return "\r\n".join([f"{before}{method} {target} HTTP/{version}", *texts, "", ""]).encode()


def _get(rng: Random) -> Message:
    method = rng.choice(("GET", "GET", "GET", "HEAD", "OPTIONS", "DELETE"))
    query = rng.choice(("", "", "?a=b", "?"))
    return Message(method, _head(rng, method, rng.choice(_PATHS) + query))


def _chunks(rng: Random, body: bytes) -> bytes:
    """A body in chunks of random sizes, with extensions and trailers here and there."""
    found, at = b"", 0
    while at < len(body):
        size = min(rng.choice((1, 2, 7, 100, 5000)), len(body) - at)
        extension = rng.choice((b"", b"", b";a", b';a="b"'))
        found += b"%s%x%s\r\n%s\r\n" % (b"0" * rng.choice((0, 0, 5)), size, extension, body[at : at + size])
        at += size
    trailers = rng.choice(
        (b"", b"", b"Authorization: Bearer token\r\nX-Request-Id: trailer\r\n", b"Connection: close\r\n")
    )
    return found + b"0\r\n" + trailers + b"\r\n"


def _post(rng: Random, path: str, body: bytes, *fields: tuple[str, str]) -> Message:
    if rng.random() < 0.1:
        fields = (*fields, ("Expect", "100-continue"))
    if rng.random() < 0.3:
        return Message("POST", _head(rng, "POST", path, *fields, ("Transfer-Encoding", "chunked")) + _chunks(rng, body))
    length = "0" * rng.choice((0, 0, 0, 3, 5000)) + str(len(body))
    return Message("POST", _head(rng, "POST", path, *fields, ("Content-Length", length)) + body)


def _parse(rng: Random) -> Message:
    text = json.dumps({"text": rng.choice(_TYPES) + " " * rng.randrange(3)}, ensure_ascii=rng.random() < 0.5).encode()
    # A body that is itself a request must stay a body.
    body = rng.choice((text, text, text, text[:-1], LAST))
    return _post(rng, PARSE, body, ("Content-Type", "application/json"))


def _quantize(rng: Random) -> Message:
    values = np.array([rng.gauss(0, 40) for _ in range(rng.randrange(1, 40))], np.float32)
    # The pattern that ends a head, and a message in chunks.
    values.view(np.uint8)[:4] = rng.choice((values[:1].view(np.uint8), np.frombuffer(b"\r\n\r\n", np.uint8)))
    return _post(rng, NPY, npy(values))


def _large(rng: Random) -> Message:
    elements = int(np.exp(rng.uniform(np.log(1000), np.log(_LONGEST_LARGE))))
    body = npy(np.frombuffer(rng.randbytes(elements), np.int8))
    return Message("POST", _head(rng, "POST", DEQUANTIZE, ("Content-Length", str(len(body)))) + body)


_KINDS: tuple[tuple[Callable[[Random], Message], float], ...] = (
    (_get, 0.2),
    (_parse, 0.4),
    (_quantize, 0.4),
)


def whole(rng: Random) -> Message:
    """A request, valid or not, after which the connection goes on."""
    ((kind, _),) = rng.choices(_KINDS, [weight for _, weight in _KINDS])
    return kind(rng)


def large(rng: Random) -> Message:
    """A request with a reply of up to 4.6 MB."""
    return _large(rng)


_JSON = b"POST /v1/types/parse HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
_GET = b"GET /v1/info HTTP/1.1\r\n"
_FAULTS = (
    b"GET ...\r\n\r\n",
    b"\x16\x03\x01\x00\xa5\x01\x00",
    _GET + b"\r\n",
    _GET + b"Host: a\r\nHost: a\r\n\r\n",
    _GET + b"Host: a b\r\n\r\n",
    _GET + b"Host: a:99999999\r\n\r\n",
    _GET + b"Host: a\nX: b\r\n\r\n",
    _GET + b"Host: a\rX: b\r\n\r\n",
    _GET + b"Host: a\r\nX: b\r\n folded\r\n\r\n",
    _GET + b"Host: a\r\nX: b\x00c\r\n\r\n",
    _GET + b"Host: a\r\nX : b\r\n\r\n",
    _GET + b"Host: a\r\n" + b"X: a\r\n" * 101 + b"\r\n",
    _GET + b"Host: a\r\nX: " + b"a" * 40_000 + b"\r\n\r\n",
    _GET + b"Host: a\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    b"\r\n" * 40_000,
    b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    b"GET / HTTP/0.9\r\nHost: a\r\n\r\n",
    b"GET /\r\n\r\n",
    b"GET / RTSP/1.0\r\nHost: a\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
    b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://a:99999999/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://@/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD /v1/info HTTP/1.1\r\n\r\n",
    _JSON + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n12345",
    _JSON + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    _JSON + b"Content-Length: +5\r\n\r\n12345",
    _JSON + b"Content-Length: 99999999999999999999\r\n\r\n12345",
    _JSON + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    _JSON + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    _JSON.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    _JSON + b"Transfer-Encoding: chunked\r\n\r\n5\r\n123456\r\n0\r\n\r\n",
    _JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    _JSON + b"Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
    _JSON + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: b\n\r\n",
    _JSON + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n" + b"X: b\r\n" * 40_000 + b"\r\n",
    _GET + b"Host: a\r\nConnection: close\r\n\r\n",
    b"GET /v1/info HTTP/1.0\r\n\r\n",
    b"GET /v1/info HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    LAST,
)


def _mutated(rng: Random) -> bytes:
    """A message that was valid, with a few wrong bytes, and the end of the connection if there are none."""
    sent = bytearray(rng.choice((_get, _parse))(rng).sent)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(sent))
        action = rng.randrange(3)
        if action == 0:
            sent[at] = rng.choice((0, 9, 10, 13, 32, 45, 48, 58, 127, 255, rng.randrange(256)))
        elif action == 1:
            del sent[at : at + rng.randrange(1, 4)]
        else:
            sent[at:at] = rng.choice((b"\r\n", b"\n", b" ", b"0", b":", rng.randbytes(2)))
    return bytes(sent) + LAST


def last(rng: Random) -> bytes:
    """What ends a connection, mostly because something is wrong with it; perhaps with more after it."""
    if rng.random() < 0.5:
        return _mutated(rng)
    return rng.choice(_FAULTS) + rng.choice((b"", b"", LAST, b"garbage"))
