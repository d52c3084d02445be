"""Blocks and read-ahead: the bytes, and what is asked of the server for them."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from requant.checkpoint.storage import remote_store
from requant.checkpoint.storage.remote_store import ReadAhead
from requant.checkpoint.storage.store import StoredFile

BLOCK, AHEAD, MAX_BLOCKS = 100, 3, 6
DATA = random.Random(1).randbytes(2345)
FILE = StoredFile("a", len(DATA), "1")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BLOCK": BLOCK, "AHEAD": AHEAD, "MAX_BLOCKS": MAX_BLOCKS}.items():
        monkeypatch.setattr(remote_store, name, value)


class Server:
    """What was fetched; `failing`: how many fetches fail."""

    def __init__(self, failing: int = 0) -> None:
        self.fetched: list[tuple[int, int]] = []
        self.failing = failing
        self.lock = threading.Lock()

    def fetch(self, file: StoredFile, begin: int, end: int) -> memoryview:
        with self.lock:
            self.fetched.append((begin, end))
            self.failing -= 1
            if self.failing >= 0:
                raise OSError("lost")
        assert 0 <= begin < end <= file.size
        return memoryview(DATA)[begin:end]


def read(reader: ReadAhead, begin: int, end: int) -> bytes:
    target = bytearray(end - begin)
    reader.read_into(FILE, begin, memoryview(target))
    return bytes(target)


def past_the_header(reader: ReadAhead) -> None:
    for _ in range(remote_store.SINGLE_READS):
        read(reader, 0, 8)


def test_a_header_is_read_alone() -> None:
    server = Server()
    reader = ReadAhead(server.fetch)
    assert read(reader, 0, 8) + read(reader, 8, 90) == DATA[:90]
    assert server.fetched == [(0, 8), (8, 90)]


def test_a_file_is_read_once_in_blocks() -> None:
    server = Server()
    reader = ReadAhead(server.fetch)
    past_the_header(reader)
    server.fetched.clear()
    assert b"".join(read(reader, begin, min(begin + 17, 2345)) for begin in range(0, 2345, 17)) == DATA
    assert sorted(server.fetched) == [(begin, min(begin + BLOCK, 2345)) for begin in range(0, 2345, BLOCK)]


def test_what_is_ahead_is_asked_for_before_it_is_needed() -> None:
    server = Server()
    reader = ReadAhead(server.fetch)
    past_the_header(reader)
    server.fetched.clear()
    read(reader, 0, 1)
    assert server.fetched == [(0, 100)]
    read(reader, 100, 101)
    reader._connections.shutdown()
    assert sorted(server.fetched) == [(begin, begin + 100) for begin in (0, 100, 200, 300, 400)]


def test_reads_here_and_there_ask_for_nothing_ahead() -> None:
    server = Server()
    reader = ReadAhead(server.fetch)
    past_the_header(reader)
    server.fetched.clear()
    for begin in (2000, 1000, 500, 1500):
        assert read(reader, begin, begin + 10) == DATA[begin : begin + 10]
    reader._connections.shutdown()
    assert len(server.fetched) == 4


def test_threads_read_any_ranges() -> None:
    reader = ReadAhead(Server().fetch)
    generator = random.Random(2)
    ranges = [sorted(generator.sample(range(2346), 2)) for _ in range(500)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda each: read(reader, *each), ranges))
    assert found == [DATA[begin:end] for begin, end in ranges]
    assert len(reader._blocks) <= MAX_BLOCKS


def test_a_block_that_failed_is_asked_for_again() -> None:
    server = Server(failing=remote_store.SINGLE_READS + 1)
    reader = ReadAhead(server.fetch)
    for _ in range(remote_store.SINGLE_READS + 1):
        with pytest.raises(OSError, match="lost"):
            read(reader, 0, 8)
    assert read(reader, 0, 8) == DATA[:8]
