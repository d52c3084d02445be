"""Receiving bodies: any chunking gives the same bytes, and nothing is believed that a message promises."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from requant.errors import LimitError, MalformedRequestError, UnreadableEncodingError
from requant_service.http.request_body import BodyReader, require_media_type

LIMIT = 1 << 20


class Client:
    """The other side of ASGI: sends the chunks that it was given, then disconnects."""

    def __init__(self, chunks: Sequence[bytes], *, complete: bool = True) -> None:
        self.messages: list[Message] = [
            {"type": "http.request", "body": chunk, "more_body": not complete or index < len(chunks) - 1}
            for index, chunk in enumerate(chunks)
        ]
        self.asked = 0

    async def receive(self) -> Message:
        self.asked += 1
        return self.messages.pop(0) if self.messages else {"type": "http.disconnect"}


def reader(client: Client, length: int | None, limit: int = LIMIT) -> BodyReader:
    header = (b"transfer-encoding", b"chunked") if length is None else (b"content-length", b"%d" % length)
    scope: dict[str, Any] = {"type": "http", "headers": [header]}
    return BodyReader(scope, client.receive, limit)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(
    data=st.binary(max_size=300),
    places=st.lists(st.integers(0, 300), max_size=12),
    takes=st.lists(st.integers(0, 100), max_size=8),
    declared=st.booleans(),
)
def test_every_chunking_gives_the_same_bytes(data: bytes, places: list[int], takes: list[int], declared: bool) -> None:
    async def run() -> None:
        body = reader(Client(cut(data, places)), len(data) if declared else None)
        at = 0
        for count in takes:
            taken = await body.take(count)
            assert taken.tobytes() == data[at : at + count]
            assert taken.flags.writeable
            at += len(taken)
        assert (await body.rest()).tobytes() == data[at:]
        assert await body.skip_rest() == 0

    asyncio.run(run())


def test_a_long_chunked_body_grows_to_its_place() -> None:
    data = bytes(range(256)) * 3000
    client = Client([data[at : at + 777] for at in range(0, len(data), 777)])
    assert asyncio.run(reader(client, None).take(len(data))).tobytes() == data


def test_a_promise_is_not_allocated() -> None:
    promised = 1 << 50  # np.empty of this would fail
    taken = asyncio.run(reader(Client([b"abc"]), None).take(promised))
    assert taken.tobytes() == b"abc"
    assert taken.base is None or len(taken.base) < LIMIT
    assert asyncio.run(reader(Client([b"abc"]), 3).take(promised)).tobytes() == b"abc"


def test_a_declared_length_over_the_limit_is_refused_before_anything_is_received() -> None:
    client = Client([b"x"])
    with pytest.raises(LimitError) as caught:
        reader(client, LIMIT + 1)
    assert caught.value.limit == LIMIT
    assert client.asked == 0


def test_a_chunked_body_over_the_limit_is_refused_when_it_passes_it() -> None:
    client = Client([b"x" * 60] * 100, complete=False)
    with pytest.raises(LimitError):
        asyncio.run(reader(client, None, limit=100).rest())
    assert client.asked == 2


@pytest.mark.parametrize("declared", [10, None])
def test_a_client_that_goes_away_is_noticed(declared: int | None) -> None:
    client = Client([b"abc"], complete=False)
    with pytest.raises(MalformedRequestError, match="ended after 3 bytes"):
        asyncio.run(reader(client, declared).take(10))


def test_no_length_and_no_chunks_is_no_body() -> None:
    body = BodyReader({"type": "http", "headers": []}, Client([b""]).receive, LIMIT)
    assert body.declared == 0
    assert asyncio.run(body.rest()).size == 0


@pytest.mark.parametrize("text", ["-1", "1e3", "", "0x10", "\u0663"])
def test_a_length_that_is_no_number_is_refused(text: str) -> None:
    scope = {"type": "http", "headers": [(b"content-length", text.encode())]}
    with pytest.raises(MalformedRequestError):
        BodyReader(scope, Client([]).receive, LIMIT)


@pytest.mark.parametrize("given_type", ["a/b", "A/B; charset=utf-8", None])
def test_served_media_types(given_type: str | None) -> None:
    require_media_type({} if given_type is None else {b"content-type": given_type.encode()}, {"a/b"})


@pytest.mark.parametrize("headers", [{b"content-type": b"a/c"}, {b"content-encoding": b"gzip"}])
def test_other_media_types_are_refused(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(UnreadableEncodingError):
        require_media_type(headers, {"a/b"})
