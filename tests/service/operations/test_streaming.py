"""Conversions while the body arrives or the reply leaves: where it is cut and which thread works is all the same."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from starlette.types import Message

from requant_service.app import Application
from requant_service.http.responses import BuffersResponse
from requant_service.npy_api.format import write_header
from requant_service.operations import conversion_run as overlap
from requant_service.runtime.executor import Executor
from tests.conftest import Server
from tests.support.asgi import Reply, post, ready_app
from tests.support.cases import sample

Array = NDArray[Any]
APP = ready_app()


def npy(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


RNG = np.random.default_rng(1)
REAL = RNG.normal(0, 9, 43)
STORED = RNG.integers(-128, 128, 43).astype(np.int8)
I8, I4 = "!quant.uniform<i8:f32, 0.5:3>", "!quant.uniform<i4:f32, 0.5>"
I12 = "!quant.uniform<i12:f32, 0.5>"
DENSE = {"packing": "dense"}
# Elements of one to eight bytes, packed ones, and outputs that are smaller, as large and larger than the input.
CASES: dict[str, tuple[str, dict[str, str], bytes]] = {
    "f32 to i8": ("quantize", {"output_type": I8}, npy(REAL.astype("<f4"))),
    "f64 to i16": ("quantize", {"output_type": "!quant.uniform<i16:f64, 0.001>"}, npy(REAL)),
    "f16 to i8": ("quantize", {"output_type": "!quant.uniform<i8:f16, 0.5>"}, npy(REAL.astype("<f2"))),
    "f32 to packed i4": ("quantize", {"output_type": I4, **DENSE}, npy(REAL.astype("<f4"))),
    "f32 to packed i12": ("quantize", {"output_type": I12, "profile": "mlir", **DENSE}, npy(REAL.astype("<f4"))),
    "packed i12 to f32": (
        "dequantize",
        {"input_type": f"tensor<43x{I12}>", "profile": "mlir", **DENSE},
        npy(np.append(RNG.integers(0, 256, 64), 9).astype(np.uint8)),
    ),
    "stochastic": ("quantize", {"output_type": I8, "rounding": "stochastic", "seed": "7"}, npy(REAL.astype("<f4"))),
    "i8 to f32": ("dequantize", {"input_type": I8}, npy(STORED)),
    "packed i4 to f32": (
        "dequantize",
        {"input_type": f"tensor<43x{I4}>", **DENSE},
        npy(np.append(RNG.integers(0, 256, 21), 9).astype(np.uint8)),
    ),
    "i32 to i8": (
        "requantize",
        {"input_type": "!quant.uniform<i32:f32, 0.001>", "output_type": I8},
        npy(RNG.integers(-99999, 99999, 43).astype("<i4")),
    ),
    "i8 to i32": (
        "requantize",
        {"input_type": I8, "output_type": "!quant.uniform<i32:f32, 0.001>"},
        npy(STORED),
    ),
}


def send(app: Application, name: str, chunks: list[bytes], *, chunked: bool = False) -> Reply:
    operation, query, file = CASES[name]
    declared = None if chunked else len(file)
    return asyncio.run(post(app, f"/v1/npy/{operation}", query, chunks, declared=declared))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    return [data[start:end] for start, end in itertools.pairwise([0, *sorted(places), len(data)])]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat small tensors as large ones: pieces of 8 elements, and inputs kept whenever they are smaller."""
    monkeypatch.setattr(overlap, "_PIECE", 8)
    monkeypatch.setattr(overlap, "_SMALL_INPUT", 0)
    monkeypatch.setattr(overlap, "_SMALL_OUTPUT", 0)


@pytest.fixture(params=["on the loop", "in threads"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    inline = request.param == "on the loop"
    monkeypatch.setattr(Executor, "_is_light", lambda *_: inline)


def expected(name: str) -> Reply:
    """The reply to the body in one piece, by the code that small tensors take."""
    reply = send(APP, name, [CASES[name][2]])
    assert reply.status == 200, reply.body
    return reply


@pytest.fixture(scope="module")
def whole() -> dict[str, Reply]:
    return {name: expected(name) for name in CASES}


def check(found: Reply, whole: Reply) -> None:
    assert (found.status, found.body) == (200, whole.body)
    for name in ("requant-saturated", "requant-type", "content-length"):
        assert found.headers[name] == whole.headers[name]
    assert int(found.headers["content-length"]) == len(found.body)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("small_pieces", "either_way")
def test_a_cut_at_every_offset(name: str, whole: dict[str, Reply]) -> None:
    file = CASES[name][2]
    for place in sample(range(1, len(file)), 20):
        check(send(APP, name, cut(file, [place]), chunked=place % 2 == 0), whole[name])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("small_pieces")
def test_chunks_of_one_byte(name: str, whole: dict[str, Reply]) -> None:
    file = CASES[name][2]
    check(send(APP, name, cut(file, list(range(1, len(file))))), whole[name])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("small_pieces")
def test_any_cuts(name: str, whole: dict[str, Reply]) -> None:
    file = CASES[name][2]

    @given(st.lists(st.integers(0, len(file)), max_size=20), st.booleans())
    def run(places: list[int], chunked: bool) -> None:
        check(send(APP, name, cut(file, places), chunked=chunked), whole[name])

    run()


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("small_pieces")
def test_any_number_of_threads(
    name: str, threads: int, whole: dict[str, Reply], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Executor, "_is_light", lambda *_: False)
    app = ready_app(threads=threads)
    file = CASES[name][2]
    for size in (13, 64, 1000):
        check(send(app, name, [file[at : at + size] for at in range(0, len(file), size)]), whole[name])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.usefixtures("small_pieces", "either_way")
def test_a_body_that_is_longer_or_shorter_than_it_promises(name: str, chunked: bool) -> None:
    operation, query, file = CASES[name]
    for sent in (file[:-1], file[: len(file) // 2 + 64], file[:130], file + b"x", file + b"x" * 1000):
        declared = None if chunked else len(sent)
        reply = asyncio.run(post(APP, f"/v1/npy/{operation}", query, cut(sent, [100, 128]), declared=declared))
        assert (reply.status, json.loads(reply.body)["code"]) == (400, "npy"), sent


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("small_pieces", "either_way")
def test_a_client_that_vanishes(name: str, whole: dict[str, Reply]) -> None:
    operation, query, file = CASES[name]
    for place in range(0, len(file), 7):
        reply = asyncio.run(
            post(APP, f"/v1/npy/{operation}", query, cut(file[:place], []), declared=len(file), complete=False)
        )
        assert reply.status == 400
    check(send(APP, name, [file]), whole[name])


@pytest.mark.usefixtures("small_pieces", "either_way")
def test_an_element_that_is_not_defined_is_named_when_the_body_has_come() -> None:
    values = np.zeros(100, np.float32)
    values[[33, 90]] = np.nan
    file = npy(values)
    chunks = [file[at : at + 50] for at in range(0, len(file), 50)]
    reply = asyncio.run(
        post(APP, "/v1/npy/quantize", {"output_type": I8, "profile": "mlir"}, chunks, declared=len(file))
    )
    problem = json.loads(reply.body)
    assert (reply.status, problem["code"], problem["index"]) == (422, "precondition_failed", 33)


@pytest.mark.parametrize("small_output", [0, 1 << 20])
@pytest.mark.usefixtures("small_pieces", "either_way")
def test_a_number_that_its_type_does_not_hold_is_refused_before_the_reply_begins(
    small_output: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "_SMALL_OUTPUT", small_output)
    stored = np.zeros(100, np.int8)
    stored[[61, 90]] = 8
    file = npy(stored)
    reply = asyncio.run(
        post(APP, "/v1/npy/dequantize", {"input_type": I4}, [file[:150], file[150:]], declared=len(file))
    )
    assert reply.status == 400
    assert "element 61 is 8" in json.loads(reply.body)["detail"]


MIB = 1 << 20


def chunks_of(header: bytes, size: int) -> Iterator[bytes]:
    """A body of zeros whose chunks are gone when the next one is asked for."""
    yield header
    while size:
        count = min(size, 250_000)
        yield bytes(count)
        size -= count


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("operation", "query", "dtype", "kept"),
    [
        ("quantize", {"output_type": I8}, np.float32, 4 * MIB),
        ("quantize", {"output_type": I4, **DENSE}, np.float32, 2 * MIB),
        ("dequantize", {"input_type": I8}, np.int8, 16 * MIB),
        ("requantize", {"input_type": I8, "output_type": "!quant.uniform<i32:f32, 0.01>"}, np.int8, 16 * MIB),
    ],
)
def test_only_the_smaller_side_is_held(
    operation: str, query: dict[str, str], dtype: type, kept: int, chunked: bool
) -> None:
    size = 16 * MIB
    header = write_header(np.dtype(dtype), (size // np.dtype(dtype).itemsize,))
    declared = None if chunked else len(header) + size

    def exchange() -> Reply:
        return asyncio.run(
            post(APP, f"/v1/npy/{operation}", query, chunks_of(header, size), declared=declared, keep=False)
        )

    assert exchange().status == 200
    tracemalloc.start()
    try:
        assert exchange().status == 200
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A chunked input that is kept grows by doubling; while it moves, the old half is there too.
    room = kept // 2 if chunked and kept == size else 0
    assert peak < kept + room + 4 * MIB


def test_pieces_of_a_giant_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Executor, "_is_light", lambda *_: False)
    threads, order = 2, []
    started = threading.Event()

    def work(name: str) -> Callable[[], str]:
        def run() -> str:
            started.set()
            order.append(name)
            return name

        return run

    async def works(name: str, count: int) -> AsyncIterator[tuple[int, Callable[[], str]]]:
        for _ in range(count):
            yield 1, work(name)

    async def drain(running: Executor, name: str, count: int) -> int:
        return len([result async for result in running.run_pieces(name, works(name, count))])

    async def run() -> tuple[int, int, int]:
        running = Executor(threads, 0)
        try:
            giant = asyncio.create_task(drain(running, "giant", 500))
            while not started.is_set():
                await asyncio.sleep(0)
            before = len(order)
            small = await drain(running, "small", 1)
            after = order.index("small")
            return await giant, small, after - before
        finally:
            running.shut_down()

    giant, small, waited = asyncio.run(run())
    assert (giant, small, len(order)) == (500, 1, 501)
    # No more than what was in line already, and what was taken up in the meantime.
    assert waited < 50


def test_the_error_of_the_first_piece_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Executor, "_is_light", lambda *_: False)
    second_failed = threading.Event()

    def first() -> None:
        second_failed.wait(60)
        raise ValueError("first")

    def second() -> None:
        second_failed.set()
        raise ValueError("second")

    async def works() -> AsyncIterator[tuple[int, Callable[[], None]]]:
        yield 1, first
        yield 1, second

    async def run() -> None:
        running = Executor(2, 0)
        try:
            async for _ in running.run_pieces("kind", works()):
                pass
        finally:
            running.shut_down()

    with pytest.raises(ValueError, match="first"):
        asyncio.run(run())


def test_small_requests_are_answered_while_a_large_one_arrives(server: Server, client: httpx.Client) -> None:
    file = npy(np.zeros(12 * MIB, np.float32))
    path = f"{server.url}/v1/npy/quantize"
    statuses: list[int] = []
    large = threading.Thread(
        target=lambda: statuses.append(
            httpx.post(path, params={"output_type": I8}, content=file, timeout=120).status_code
        )
    )
    large.start()
    small = 0
    while large.is_alive():
        assert client.post(path, params={"output_type": I8}, content=CASES["f32 to i8"][2]).status_code == 200
        small += 1
    large.join()
    assert statuses == [200]
    assert small > 1


def test_a_large_reply_leaves_in_parts_between_which_others_run() -> None:
    turns = 0
    sent: list[int] = []

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def receive() -> Message:
        raise AssertionError("nothing is received")

    async def send(message: Message) -> None:
        if message.get("body"):
            sent.append(turns)

    async def run() -> None:
        task = asyncio.create_task(other())
        reply = BuffersResponse([b"head", memoryview(bytes(1 << 20)), bytes(100)], "text/plain")
        await reply({"type": "http", "headers": []}, receive, send)
        task.cancel()

    asyncio.run(run())
    assert len(sent) == 6
    assert len(set(sent[1:5])) == 4
