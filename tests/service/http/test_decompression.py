"""Compressed bodies are inflated to the same bytes however they are cut, and never further than the bounds."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from requant.errors import LimitError, MalformedRequestError, UnreadableEncodingError
from requant_service.http.request_body import open_body
from requant_service.runtime.executor import Executor
from tests.support.cases import EXHAUSTIVE

CODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


def inflate(
    packed: bytes,
    coding: str,
    *,
    size: int = 1 << 16,
    limit: int = 8 << 20,
    asked: list[int] | None = None,
    stated: bool = False,
) -> bytes:
    """Return what `open_body` makes of a body that comes in messages of `size` bytes.

    `asked`: where each message that was asked for begins. `stated`: with its length.
    """

    def messages() -> Iterator[Message]:
        for at in range(0, len(packed), size):
            if asked is not None:
                asked.append(at)
            yield {"type": "http.request", "body": packed[at : at + size], "more_body": True}
        yield {"type": "http.request", "body": b"", "more_body": False}

    rest = messages()

    async def receive() -> Message:
        return next(rest)

    async def read() -> bytes:
        executor = Executor(1, 64 << 10)
        length = (b"content-length", str(len(packed)).encode()) if stated else (b"transfer-encoding", b"chunked")
        headers = [(b"content-encoding", coding.encode()), length]
        try:
            reader = open_body({"type": "http", "headers": headers}, receive, limit, executor)
            return (await reader.rest()).tobytes()
        finally:
            executor.shut_down()

    return asyncio.run(read())


BODIES = st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 3000))).map(
    lambda runs: b"".join(text * count for text, count in runs)
)


@given(BODIES, st.sampled_from(sorted(CODINGS)), st.integers(1, 5000))
def test_any_cut(body: bytes, coding: str, size: int) -> None:
    assert inflate(CODINGS[coding](body), coding, size=size) == body


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("length", [(256 << 10) - 1, 256 << 10, (256 << 10) + 1, 512 << 10, 1 << 20])
def test_bodies_around_the_size_of_a_piece(coding: str, length: int) -> None:
    body = bytes(length)
    for size in (1, 7, 1 << 16):
        assert inflate(CODINGS[coding](body), coding, size=size) == body


@pytest.mark.parametrize("coding", CODINGS)
def test_growth_is_bounded_on_the_way(coding: str) -> None:
    """A body that grows a hundredfold is refused after about a mebibyte, long before its end."""
    packed = CODINGS[coding](bytes(1 << 30 if EXHAUSTIVE else 1 << 26))
    asked: list[int] = []
    with pytest.raises(LimitError) as caught:
        inflate(packed, coding, size=1000, limit=1 << 40, asked=asked)
    assert caught.value.limit == 100
    assert asked[-1] < 3000
    # A body that grows less is taken, whatever its length.
    noise = np.random.default_rng(2).integers(0, 256, (20_000 if EXHAUSTIVE else 2_000, 8), np.uint8)
    repeated = b"".join(row.tobytes() + bytes(800) for row in noise)
    assert 50 < len(repeated) / len(CODINGS[coding](repeated)) < 100
    assert inflate(CODINGS[coding](repeated), coding, limit=1 << 30) == repeated


def test_both_forms_are_bounded() -> None:
    noise = b"".join(zlib.compress(bytes([n % 256]) * n) for n in range(2000))
    with pytest.raises(LimitError) as caught:
        inflate(gzip.compress(noise), "gzip", limit=len(noise) - 1)
    assert caught.value.limit == len(noise) - 1
    # Empty blocks without end: nothing comes out of them.
    empty = zlib.compressobj(wbits=31)
    endless = empty.compress(b"x") + b"".join(empty.flush(zlib.Z_FULL_FLUSH) + empty.compress(b"") for _ in range(9))
    endless += b"\0\0\0\xff\xff" * 100_000
    with pytest.raises(LimitError):
        inflate(endless, "gzip", limit=100_000)


def test_a_stated_length_over_the_limit_is_refused_before_anything_comes() -> None:
    asked: list[int] = []
    with pytest.raises(LimitError):
        inflate(gzip.compress(b"x"), "gzip", limit=20, asked=asked, stated=True)
    assert not asked
    assert inflate(gzip.compress(b"x"), "gzip", limit=21, stated=True) == b"x"


@pytest.mark.parametrize("coding", ["br", "gzip,gzip", "gzip, deflate", "none"])
def test_other_codings(coding: str) -> None:
    with pytest.raises(UnreadableEncodingError):
        inflate(b"", coding)


@pytest.mark.parametrize("coding", CODINGS)
def test_every_end_but_the_right_one_is_refused(coding: str) -> None:
    packed = CODINGS[coding](b"some text, some text, some text")
    for size in (1, 1000):
        for end in range(len(packed)):
            with pytest.raises(MalformedRequestError):
                inflate(packed[:end], coding, size=size)
        with pytest.raises(MalformedRequestError):
            inflate(packed + b"\0", coding, size=size)


def test_a_client_that_leaves() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def read() -> Any:
        executor = Executor(1, 64 << 10)
        scope = {"type": "http", "headers": [(b"content-encoding", b"gzip"), (b"transfer-encoding", b"chunked")]}
        try:
            return await open_body(scope, receive, 100, executor).rest()
        finally:
            executor.shut_down()

    with pytest.raises(MalformedRequestError):
        asyncio.run(read())
