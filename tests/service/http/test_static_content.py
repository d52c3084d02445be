"""Content that never changes: made once, whoever asks for it at the same time, and never on the event loop."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time

import pytest
from starlette.requests import Request

from requant_service.http.responses import StaticContent


def request(*headers: tuple[bytes, bytes]) -> Request:
    return Request({"type": "http", "headers": list(headers)})


def test_it_is_made_once_and_in_a_thread() -> None:
    made_in = []

    def make() -> bytes:
        made_in.append(threading.current_thread())
        time.sleep(0.05)
        return b"{}"

    content = StaticContent(make)

    async def ask() -> None:
        replies = await asyncio.gather(*(content.response(request()) for _ in range(5)))
        assert {reply.body for reply in replies} == {b"{}"}

    asyncio.run(ask())
    assert len(made_in) == 1
    assert made_in[0] is not threading.main_thread()


def test_what_could_not_be_made_is_tried_again() -> None:
    tries: list[int] = []

    def make() -> bytes:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("no such file")
        return b"x"

    content = StaticContent(make)
    with pytest.raises(OSError, match="no such file"):
        asyncio.run(content.response(request()))
    assert asyncio.run(content.response(request())).body == b"x"


@pytest.mark.parametrize("accepted", [b"gzip", b"br, GZIP ;q=0.1", b"deflate,gzip;q=1.0"])
def test_it_is_compressed_for_those_who_accept_that(accepted: bytes) -> None:
    content = StaticContent(lambda: b"{}" * 100, compressed=True)
    asked = request((b"accept-encoding", accepted))
    reply = asyncio.run(content.response(asked))
    assert gzip.decompress(bytes(reply.body)) == b"{}" * 100
    assert (reply.headers["content-encoding"], reply.headers["vary"]) == ("gzip", "accept-encoding")
    known = request((b"accept-encoding", accepted), (b"if-none-match", reply.headers["etag"].encode()))
    assert asyncio.run(content.response(known)).status_code == 304
    plain = asyncio.run(content.response(request()))
    assert (plain.body, plain.headers["vary"]) == (b"{}" * 100, "accept-encoding")
    assert plain.headers["etag"] != reply.headers["etag"]


@pytest.mark.parametrize("refused", [b"", b"identity", b"gzip;q=0", b"gzip; q=0.000", b"xgzip", b"*;q=0"])
def test_it_is_plain_for_all_others(refused: bytes) -> None:
    content = StaticContent(lambda: b"{}", compressed=True)
    reply = asyncio.run(content.response(request((b"accept-encoding", refused))))
    assert reply.body == b"{}"
    assert "content-encoding" not in reply.headers
