"""What requests do to each other, and to the memory: a small one beside a giant one, and the peak of a giant one."""

from __future__ import annotations

import base64
import json
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from statistics import median, quantiles

from benchmarks.http.case import Case, post
from benchmarks.http.client import Connection, latencies
from benchmarks.http.server import HEART, OURS, OURS_JSON, STRAIGHTFORWARD, Server

_SECONDS = 2.0
_FEWEST = 100
_ROUNDS = 3
_GIANT = 64_000_000
_JSON = 5_500_000
_LARGEST_JSON = 6_290_000
_ASK = b"GET /heart HTTP/1.1\r\nHost: localhost\r\n\r\n"
_MULTIPLIERS = 65_536


def _most_multipliers() -> bytes:
    """Return a request of 65536 scales, zero points and multipliers: the most text that one makes of its limits."""
    scales = ", ".join(["0.5:3"] * _MULTIPLIERS)
    body = {
        "input": {
            "type": f"tensor<{_MULTIPLIERS}x!quant.uniform<i32:f32:0, {{{scales}}}>>",
            "data": base64.b64encode(bytes(4 * _MULTIPLIERS)).decode(),
        },
        "output_type": f"!quant.uniform<i8:f32:0, {{{scales}}}>",
        "multipliers": [{"multiplier": 1 << 30, "shift": -3}] * _MULTIPLIERS,
    }
    return post("/v1/requantize", "application/json", json.dumps(body).encode())


def pauses_of_the_loop() -> list[list[str]]:
    """Return how late the event loop's latest beat was in two seconds, beside each of several requests: median and
    longest of several such times, in milliseconds."""
    others = {
        "nothing": None,
        "8 MiB of JSON, again and again": OURS_JSON.request(Case.of(_LARGEST_JSON)),
        "65,536 scales and multipliers in JSON": _most_multipliers(),
        "64 MB of .npy, again and again": OURS.request(Case.of(_GIANT)),
    }
    server, rows = Server(HEART), []
    try:
        server.wait(Case.of(1000))
        for name, request in others.items():
            with nullcontext() if request is None else _beside(server.port, request):
                late = [_latest_beat(server.port) for _ in range(_ROUNDS + 1)][1:]
            rows.append([name, f"{median(late):.1f}", f"{max(late):.1f}"])
    finally:
        server.stop()
    return rows


def _latest_beat(port: int) -> float:
    connection = Connection(port, _ASK)
    time.sleep(_SECONDS)
    found = float(connection.exchange())
    connection.close()
    return found


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
