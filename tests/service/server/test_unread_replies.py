"""Replies that nobody takes: memory stays within the budget, others are served, and all of it is given back."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import httpx
import numpy as np
import pytest

from requant_service.runtime.memory_budget import MemoryBudget, Reservation
from requant_service.server import malloc
from tests.conftest import Server, started
from tests.support.asgi import post, ready_app
from tests.support.process_memory import memory

BUDGET = 400_000_000
# What the process may need beside the budget and what it has when it is idle.
BESIDE = 128 << 20
TYPE = "!quant.uniform<i8:f32, 0.5>"
E8 = "%21quant.uniform%3Ci8%3Af32%2C0.5%3E"


def request(path: str, array: np.ndarray[tuple[int], np.dtype[np.int8]], *fields: str) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    body = file.getvalue()
    return (
        "\r\n".join(
            [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *fields, "", ""]
        ).encode()
        + body
    )


def requests(mebibytes: int) -> list[bytes]:
    """Requests for replies of a size: kept whole, made while they are sent, and kept for their digest."""
    kept, made = np.ones(mebibytes << 20, np.int8), np.ones(mebibytes << 18, np.int8)
    return [
        request(f"/v1/npy/requantize?input_type={E8}&output_type={E8}", kept),
        request(f"/v1/npy/dequantize?input_type={E8}", made),
        request(f"/v1/npy/dequantize?input_type={E8}", made, "Want-Repr-Digest: sha-256=1"),
    ]


class Probe(threading.Thread):
    """Small requests all the while."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._ends = threading.Event()
        self._seen = 0
        self.statuses: Counter[int] = Counter()
        self.seconds: list[float] = []

    def run(self) -> None:
        body = request("", np.arange(64, dtype=np.int8)).partition(b"\r\n\r\n")[2]
        with httpx.Client(timeout=60) as client:
            while not self._ends.wait(0.005):
                began = time.perf_counter()
                reply = client.post(f"{self._url}/v1/npy/dequantize?input_type={E8}", content=body)
                self.seconds.append(time.perf_counter() - began)
                self.statuses[reply.status_code] += 1

    def slowest(self) -> float:
        """The longest that a request took since this was last asked."""
        new = self.seconds[self._seen :]
        self._seen += len(new)
        return max(new)

    def end(self) -> None:
        self._ends.set()
        self.join()


def send(connection: socket.socket, sent: bytes, read: int) -> None:
    with contextlib.suppress(OSError):
        connection.settimeout(20)
        connection.sendall(sent)
        while read and (received := len(connection.recv(min(read, 1 << 16)))):
            read -= received


def attack(server: Server, waves: int, replies: int) -> Iterator[None]:
    """Waves of replies of mixed sizes; half of each wave stays when the next one comes, as holes in the heap.

    Yields at the end of each.
    """
    rng = random.Random(26)
    made = {size: requests(size) for size in (8, 13, 21, 34, 55)}
    held: list[socket.socket] = []
    for _ in range(waves):
        connections = [server.connect() for _ in range(replies)]
        jobs = []
        for connection in connections:
            sent = rng.choice(made[rng.choice(list(made))])
            # Nothing, a part, or all but the end.
            read = rng.choice((0, 0, 1 << 20, len(sent) - (100 << 10)))
            jobs.append(threading.Thread(target=send, args=(connection, sent, read)))
            jobs[-1].start()
        time.sleep(2)
        for each in held:
            each.close()
        rng.shuffle(connections)
        held = connections[::2]
        for each in connections[1::2]:
            each.close()
        for job in jobs:
            if job.is_alive():
                job.join(0.1)
        yield
    for each in held:
        each.close()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is looked up in /proc")
@pytest.mark.exhaustive
def test_replies_that_nobody_takes(tmp_path: Path) -> None:
    with started(tmp_path / "log", "--drain-seconds=0", f"--memory-bytes={BUDGET}") as (server, process):
        probe = Probe(server.url)
        probe.start()
        time.sleep(1)
        idle = memory(process.pid)["VmRSS"]
        slowest = [probe.slowest() for _ in attack(server, waves=5, replies=40)]
        assert memory(process.pid)["VmHWM"] < idle + BUDGET + BESIDE
        # Nothing large for a second, and small requests all the while.
        deadline = time.monotonic() + 60
        while (now := memory(process.pid)["VmRSS"]) > idle + (32 << 20):
            assert time.monotonic() < deadline, (now, idle)
            time.sleep(0.1)
        probe.end()
        assert set(probe.statuses) == {200}
        # On a quiet machine the former. In most waves: another process may delay one probe.
        assert median(slowest) < max(0.1, 10 * float(np.percentile(probe.seconds, 99)))


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="memory is looked up in /proc")
def test_memory_goes_back_after_large_replies(tmp_path: Path) -> None:
    """Replies of different sizes at once, all of them read."""
    with started(tmp_path / "log", "--drain-seconds=0", f"--memory-bytes={BUDGET}") as (server, process):
        connections = [server.connect() for _ in range(4)]
        with contextlib.ExitStack() as stack:
            for each in connections:
                stack.enter_context(each)
            idle = memory(process.pid)["VmRSS"]
            sent = zip(connections, (8, 13, 21, 34), strict=True)
            jobs = [threading.Thread(target=send, args=(each, requests(size)[0], size << 20)) for each, size in sent]
            for job in jobs:
                job.start()
            for job in jobs:
                job.join()
            assert memory(process.pid)["VmHWM"] > idle + (64 << 20)
            deadline = time.monotonic() + 20
            while (now := memory(process.pid)["VmRSS"]) > idle + (32 << 20):
                assert time.monotonic() < deadline, (now, idle)
                time.sleep(0.1)


class Library:
    """An allocator that counts how often it is trimmed, and by which threads."""

    def __init__(self) -> None:
        self.trims = 0
        self.threads: set[str] = set()

    def malloc_trim(self, _: int) -> int:
        self.trims += 1
        self.threads.add(threading.current_thread().name)
        return 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setattr(malloc, "_c_library", lambda: found)
    monkeypatch.setattr(malloc, "resident_bytes", lambda: 10_000 << 20)
    return found


def take_and_give_back(budget: MemoryBudget, byte_count: int) -> None:
    assert budget.try_take(byte_count)
    budget.give_back(byte_count)


def test_what_is_kept_is_given_back_before_it_leads_beyond_the_budget(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = MemoryBudget(400 << 20, 0, 0.0)
    malloc.KeptMemory(budget)
    take_and_give_back(budget, 100 << 20)
    assert library.trims == 0
    # 200 held, 100 free in holes, and 200 more: within the budget and its slack only after a trim.
    monkeypatch.setattr(malloc, "resident_bytes", lambda: 10_300 << 20)
    assert budget.try_take(200 << 20)
    assert library.trims == 0
    assert budget.try_take(200 << 20)
    assert library.trims == 1
    budget.give_back(400 << 20)
    # As much as the process has grown by is all that can be kept.
    monkeypatch.setattr(malloc, "resident_bytes", lambda: 10_010 << 20)
    for _ in range(20):
        take_and_give_back(budget, 50 << 20)
    assert library.trims == 1


def test_what_is_kept_is_given_back_when_nothing_large_is_done(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(malloc, "monotonic", lambda: clock[0])
    budget = MemoryBudget(400 << 20, 0, 0.0, small_share=1 << 20)
    kept = malloc.KeptMemory(budget)
    for clock[0] in (5.0, 10.0):
        kept.tick()
    assert library.trims == 0
    take_and_give_back(budget, 50 << 20)
    for seconds in range(8):
        clock[0] = 10.0 + seconds / 8
        take_and_give_back(budget, 1 << 10)
        kept.tick()
    assert library.trims == 0
    for clock[0] in (11.1, 12.0, 20.0):
        kept.tick()
    for thread in threading.enumerate():
        if thread.name == "trim":
            thread.join()
    assert (library.trims, library.threads) == (1, {"trim"})


def test_small_amounts_wait_behind_nobody() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(10 << 20, 4, 5.0, small_share=128 << 10)
        with Reservation(budget) as large:
            await large.grow(10 << 20)
            waiting = asyncio.create_task(budget.take(1 << 20))
            await asyncio.sleep(0)
            assert budget.waiting == 1
            assert budget.try_take(64 << 10)
            assert budget.try_take(64 << 10)
            # The share is all that they have.
            assert not budget.try_take(1)
            assert not budget.try_take((64 << 10) + 1)
            budget.give_back(128 << 10)
        await waiting
        budget.give_back(1 << 20)
        assert budget.reserved == 0

    asyncio.run(scenario())


def test_a_reply_that_no_memory_is_left_for_is_refused() -> None:
    """What a digest has to be made of is kept, and there is a limit for that."""

    async def scenario() -> tuple[int, bytes]:
        file = request("", np.ones(400_000, np.int8)).partition(b"\r\n\r\n")[2]
        digest = [(b"want-repr-digest", b"sha-256=1")]
        app = ready_app(memory_bytes=1_500_000)
        reply = await post(app, "/v1/npy/dequantize", {"input_type": TYPE}, [file], declared=len(file), headers=digest)
        return reply.status, reply.body

    status, body = asyncio.run(scenario())
    assert (status, b'"code":"limit_exceeded"' in body) == (413, True)


def unsent(port: int, client: socket.socket) -> int:
    """How many bytes the system keeps that were written to a client and not sent."""
    local = client.getsockname()[1]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (found,) = [
        int(row[4].partition(":")[0], 16)
        for row in rows
        if row[1].endswith(f":{port:04X}") and row[2].endswith(f":{local:04X}")
    ]
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="the option has another meaning there")
def test_the_system_keeps_little_of_what_is_not_taken(server: Server) -> None:
    made = request(f"/v1/npy/dequantize?input_type={E8}", np.ones(4 << 20, np.int8))
    with server.connect() as connection:
        connection.sendall(made)
        deadline = time.monotonic() + 60
        while not unsent(server.port, connection):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        # Time to write more.
        time.sleep(1)
        assert 0 < unsent(server.port, connection) < 1 << 20
