"""What requests do to each other, and to the memory: a small one beside a giant one, and the peak of a giant one."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from statistics import median, quantiles

from benchmarks.http.case import Case
from benchmarks.http.client import Connection, latencies
from benchmarks.http.server import OURS, OURS_JSON, STRAIGHTFORWARD, Server

_SECONDS = 2.0
_FEWEST = 100
_ROUNDS = 3
_GIANT = 64_000_000
_JSON = 5_500_000


def _send_again_and_again(port: int, request: bytes) -> None:
    connection = Connection(port, request)
    while True:
        connection.exchange()


@contextmanager
def _beside(port: int, request: bytes) -> Iterator[None]:
    """Let another process send a request again and again."""
    process = multiprocessing.get_context("spawn").Process(
        target=_send_again_and_again, args=(port, request), daemon=True
    )
    process.start()
    time.sleep(2)
    try:
        yield
    finally:
        process.kill()
        process.join()


def small_beside_giant(server: Server) -> list[list[str]]:
    """Return what a 1 KB request takes alone, beside a 64 MB body, and beside a JSON body of 7.3 MB.

    Rows: what goes on beside it; p50, p99 and the longest exchange in milliseconds; how many times its p99 alone.
    """
    small = Case.of(1000)
    others = {
        "nothing": None,
        "64 MB of .npy, again and again": OURS.request(Case.of(_GIANT)),
        "7.3 MB of JSON, again and again": OURS_JSON.request(Case.of(_JSON)),
    }
    rows, alone = [], 0.0
    for name, request in others.items():
        with nullcontext() if request is None else _beside(server.port, request):
            samples = [_small(server, small) for _ in range(_ROUNDS)]
        p50, p99, longest = (median(column) for column in zip(*samples, strict=True))
        alone = alone or p99
        rows.append([name, *(f"{seconds * 1e3:.3f}" for seconds in (p50, p99, longest)), f"{p99 / alone:.1f}"])
    return rows


def _small(server: Server, case: Case) -> tuple[float, float, float]:
    connection = Connection(server.port, OURS.request(case))
    OURS.check(case, connection.exchange())
    times, _ = latencies([connection], _SECONDS, _FEWEST)
    connection.close()
    return median(times), quantiles(times, n=100)[98], max(times)


def memory_and_start() -> list[list[str]]:
    """Return for a new server, ours and the straightforward one: seconds until its first reply, with warm kernels; MB
    that it holds idle; MB more at the peak of a 64 MB request; the MB of the output."""
    case = Case.of(_GIANT)
    rows = []
    for contender in (OURS, STRAIGHTFORWARD):
        server = Server(contender)
        try:
            ready = server.wait(Case.of(1000))
            idle = server.resident()
            server.forget_peak()
            connection = Connection(server.port, contender.request(case))
            contender.check(case, connection.exchange())
            connection.close()
            more = server.peak() - idle
        finally:
            server.stop()
        rows.append(
            [contender.name, f"{ready:.2f}", *(f"{size / 1e6:.1f}" for size in (idle, more, len(case.expected)))]
        )
    return rows
