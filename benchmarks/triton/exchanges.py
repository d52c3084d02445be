"""Exchanges over HTTP with binary tensors, and over gRPC: requests a second, and the servers' CPU time for one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

from benchmarks.http.case import PARAMETERS, Case
from benchmarks.http.client import latencies, multiplexed
from benchmarks.http.exchanges import FEWEST, ROUNDS, SECONDS, SIZES, connected
from benchmarks.http.server import Contender, Server
from benchmarks.section import table
from benchmarks.triton import grpc_client
from benchmarks.triton.servers import (
    MODEL,
    MODEL_OF_ONE_INSTANCE,
    OURS_NPY,
    OURS_V2,
    TRITON,
    TRITON_ONE_INSTANCE,
    WORKERS,
    Running,
)

V2, NPY, ONE_WORKER, GRPC = "V2", ".npy", "V2, one worker", "gRPC"
_TRITON, _ONE_INSTANCE = "Triton", "Triton, one instance"
_HTTP_CLIENTS, _GRPC_CLIENTS = (1, 8, 32), (1, 8)
_GRPC_SIZES = ("1 KB", "100 KB", "1 MB", "64 MB")

Measure = Callable[[], tuple[list[float], float]]
"""Returns the seconds of each exchange, and those of all together."""


@dataclass(frozen=True, slots=True)
class Side:
    """A way to ask a server. `connect(case, clients)`: connections that were checked, as what measures on them."""

    name: str
    server: Server
    connect: Callable[[Case, int], AbstractContextManager[Measure]]


@dataclass(frozen=True, slots=True)
class Row:
    """A size and a number of clients: by side the median of requests a second, and CPU seconds of a request."""

    size: str
    clients: int
    per_second: dict[str, float]
    cpu_seconds: dict[str, float]

    @property
    def name(self) -> str:
        """Size and clients in words."""
        return f"{self.size}, {self.clients} client{'s' if self.clients > 1 else ''}"

    def times_triton(self, side: str) -> float:
        """Return a side's rate by Triton's, of the model that is faster."""
        return self.per_second[side] / max(self.per_second[_TRITON], self.per_second[_ONE_INSTANCE])

    def times_one_worker(self) -> float:
        """Return the CPU time of a request with all workers by that with one."""
        return self.cpu_seconds[V2] / self.cpu_seconds[ONE_WORKER]

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return asdict(self)


@contextmanager
def _over_http(contender: Contender, server: Server, case: Case, clients: int) -> Iterator[Measure]:
    with connected(contender, server.port, case, clients, checked=WORKERS) as connections:
        yield partial(latencies, connections, SECONDS, max(FEWEST, clients))


@contextmanager
def _over_grpc(
    running: Running, model: str, parameters: Mapping[str, str], case: Case, clients: int
) -> Iterator[Measure]:
    message = grpc_client.message_of(case, model, parameters)
    with ExitStack() as stack:
        connections = [grpc_client.Connection(running.grpc_port, message) for _ in range(clients)]
        for connection in connections:
            stack.callback(connection.close)
            grpc_client.check(case, connection.exchange())
        yield partial(multiplexed, connections, SECONDS, max(FEWEST, clients))


def over_http(ours: Server, one_worker: Server, triton: Server, rounds: int = ROUNDS) -> list[Row]:
    """Measure every size and number of clients. Raise AssertionError if a reply is wrong."""
    asked = {
        V2: (OURS_V2, ours),
        NPY: (OURS_NPY, ours),
        ONE_WORKER: (OURS_V2, one_worker),
        _TRITON: (TRITON, triton),
        _ONE_INSTANCE: (TRITON_ONE_INSTANCE, triton),
    }
    sides = [Side(name, server, partial(_over_http, contender, server)) for name, (contender, server) in asked.items()]
    return _rows(sides, SIZES, _HTTP_CLIENTS, rounds)


def over_grpc(ours: Running, triton: Running, rounds: int = ROUNDS) -> list[Row]:
    """Measure some sizes and numbers of clients. Raise AssertionError if a reply is wrong."""
    asked: dict[str, tuple[Running, str, Mapping[str, str]]] = {
        GRPC: (ours, MODEL, PARAMETERS),
        _TRITON: (triton, MODEL, {}),
        _ONE_INSTANCE: (triton, MODEL_OF_ONE_INSTANCE, {}),
    }
    sides = [Side(name, each[0].server, partial(_over_grpc, *each)) for name, each in asked.items()]
    return _rows(sides, _GRPC_SIZES, _GRPC_CLIENTS, rounds)


def _rows(sides: Sequence[Side], sizes: Iterable[str], numbers_of_clients: Sequence[int], rounds: int) -> list[Row]:
    rows = []
    for size in sizes:
        case = Case.of(SIZES[size])
        rows += [_side_by_side(sides, case, size, clients, rounds) for clients in numbers_of_clients]
    return rows


def _side_by_side(sides: Sequence[Side], case: Case, size: str, clients: int, rounds: int) -> Row:
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    cpu = dict.fromkeys(rates, 0.0)
    requests = dict.fromkeys(rates, 0)
    order = list(sides)
    for _ in range(rounds):
        random.shuffle(order)
        for side in order:
            with side.connect(case, clients) as measure:
                before = side.server.cpu_seconds()
                times, seconds = measure()
                cpu[side.name] += side.server.cpu_seconds() - before
            requests[side.name] += len(times)
            rates[side.name].append(len(times) / seconds)
    return Row(
        size,
        clients,
        {name: median(samples) for name, samples in rates.items()},
        {name: taken / requests[name] for name, taken in cpu.items()},
    )


def rate_table(rows: Sequence[Row], ours: Sequence[str]) -> str:
    """Return the table of requests a second, and of the ratios of our sides."""
    header = [
        "requests a second: body",
        "clients",
        *rows[0].per_second,
        *(f"{name} / Triton's better" for name in ours),
    ]
    return table(
        header,
        [
            [
                row.size,
                str(row.clients),
                *(f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}" for rate in row.per_second.values()),
                *(f"{row.times_triton(name):.2f}" for name in ours),
            ]
            for row in rows
        ],
    )


def cpu_table(rows: Sequence[Row]) -> str:
    """Return the table of CPU time, with the ratio of all workers to one where that was measured."""
    has_one_worker = ONE_WORKER in rows[0].cpu_seconds
    header = ["µs of CPU of a request: body", "clients", *rows[0].cpu_seconds]
    return table(
        [*header, *([f"{V2} / {ONE_WORKER}"] if has_one_worker else [])],
        [
            [
                row.size,
                str(row.clients),
                *(f"{1e6 * seconds:,.0f}" for seconds in row.cpu_seconds.values()),
                *([f"{row.times_one_worker():.2f}"] if has_one_worker else []),
            ]
            for row in rows
        ],
    )
