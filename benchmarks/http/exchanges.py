"""The tables of exchanges: what one costs with each server, by the size of its body and the number of clients.

All servers run the whole time, and take turns in an order that is shuffled each round. The client sends each request
when the reply to the last is there, on one connection for each client.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

from benchmarks.http.case import Case
from benchmarks.http.client import Connection, latencies
from benchmarks.http.server import FLOOR, KEEPING_FLOOR, MLSERVER, OURS, OURS_JSON, STRAIGHTFORWARD, Contender, Server

SIZES = {"1 KB": 1_000, "100 KB": 100_000, "1 MB": 1_000_000, "10 MB": 10_000_000, "64 MB": 64_000_000}
CLIENTS = (1, 8)
ROUNDS = 5
SECONDS = 0.3
FEWEST = 3
_MORE_CLIENTS_UP_TO = 10_000_000


@dataclass(frozen=True, slots=True)
class Exchanges:
    """One server, size and number of clients: seconds of an exchange, and bodies a second. Medians over the rounds."""

    server: str
    size: str
    clients: int
    p50: float
    p99: float
    per_second: float

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return asdict(self)


@contextmanager
def running(contenders: Sequence[Contender]) -> Iterator[list[Server]]:
    """Start the servers, one after the other, each checked on a small case."""
    case = Case.of(SIZES["1 KB"])
    with ExitStack() as stack:
        servers = []
        for contender in contenders:
            server = Server(contender)
            stack.callback(server.stop)
            server.wait(case)
            servers.append(server)
        yield servers


def exchanges(servers: Sequence[Server], rounds: int = ROUNDS) -> list[Exchanges]:
    """Measure every server with every size and number of clients. Raise AssertionError if a reply is wrong."""
    rows = []
    for size, count in SIZES.items():
        case = Case.of(count)
        for clients in CLIENTS if count <= _MORE_CLIENTS_UP_TO else (1,):
            rows += _side_by_side(
                [each for each in servers if count <= each.contender.largest], case, size, clients, rounds
            )
    return rows


def _side_by_side(servers: Sequence[Server], case: Case, size: str, clients: int, rounds: int) -> list[Exchanges]:
    taken: dict[str, list[tuple[float, float, float]]] = {server.contender.name: [] for server in servers}
    order = list(servers)
    for _ in range(rounds):
        random.shuffle(order)
        for server in order:
            times, seconds = one_round(server.contender, server.port, case, clients)
            samples = median(times), quantiles(times, n=100)[98], len(times) / seconds
            taken[server.contender.name].append(samples)
    return [
        Exchanges(name, size, clients, *(median(column) for column in zip(*samples, strict=True)))
        for name, samples in taken.items()
    ]


def one_round(contender: Contender, port: int, case: Case, clients: int) -> tuple[list[float], float]:
    """Return the seconds of each exchange, after one that is checked, and those of all together."""
    with connected(contender, port, case, clients) as connections:
        return latencies(connections, SECONDS, max(FEWEST, clients))


@contextmanager
def connected(
    contender: Contender, port: int, case: Case, clients: int, checked: int = 1
) -> Iterator[list[Connection]]:
    """Connect. On the first connections, `checked` of them, there was an exchange with the right reply.

    Connections are new: some servers hang up while it is the others' turn.
    """
    with ExitStack() as stack:
        request = contender.request(case)
        connections = [Connection(port, request) for _ in range(clients)]
        for connection in connections:
            stack.callback(connection.close)
        for connection in connections[:checked]:
            contender.check(case, connection.exchange())
        for connection in connections:
            connection.body_bytes = connections[0].body_bytes
        yield connections


def exchange_rows(found: Sequence[Exchanges]) -> list[list[str]]:
    """Return the rows of the table of all that was measured."""
    return [
        [
            row.size,
            str(row.clients),
            row.server,
            _milliseconds(row.p50),
            _milliseconds(row.p99),
            f"{row.per_second:,.0f}" if row.per_second >= 10 else f"{row.per_second:.1f}",
        ]
        for row in found
    ]


def goal_rows(found: Sequence[Exchanges]) -> list[list[str]]:
    """Return for each size, one client: how many times faster than the peers, and the share of the floor."""
    p50 = {(row.server, row.size): row.p50 for row in found if row.clients == 1}

    def ratio(server: Contender, size: str, *, of: Contender = OURS) -> str:
        other, mine = p50.get((server.name, size)), p50.get((of.name, size))
        return "-" if other is None or mine is None else f"{other / mine:.2f}"

    names = {
        "times faster than the straightforward handler": (STRAIGHTFORWARD, OURS),
        "share of uvicorn's floor": (FLOOR, OURS),
        "share of that floor with memory kept": (KEEPING_FLOOR, OURS),
        "times faster than MLServer, V2 base64": (MLSERVER, OURS),
        "JSON: times slower than .npy": (OURS_JSON, OURS),
    }
    return [[name, *(ratio(peer, size, of=of) for size in SIZES)] for name, (peer, of) in names.items()]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
