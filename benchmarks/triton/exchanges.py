"""Exchanges over HTTP with binary tensors: requests a second, and the servers' CPU time for one."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.http.case import Case
from benchmarks.http.exchanges import CLIENTS, ROUNDS, SIZES, one_round
from benchmarks.http.server import Contender, Server
from benchmarks.triton.servers import OURS_NPY, OURS_V2, TRITON, TRITON_ONE_INSTANCE

HEADER = [
    "requests a second: body",
    "clients",
    "V2",
    ".npy",
    "Triton",
    "Triton, one instance",
    "V2 / Triton's better",
    ".npy / Triton's better",
]
CPU_HEADER = ["µs of CPU of a request: body", "clients", "V2", ".npy", "Triton", "Triton, one instance", "V2 / .npy"]


@dataclass(frozen=True, slots=True)
class Row:
    """A size and a number of clients: by contender the median of requests a second, and CPU seconds of a request."""

    size: str
    clients: int
    per_second: dict[str, float]
    cpu_seconds: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return asdict(self)


def exchanges(ours: Server, triton: Server, rounds: int = ROUNDS) -> list[Row]:
    """Measure every size and number of clients. Raise AssertionError if a reply is wrong."""
    sides = [(OURS_V2, ours), (OURS_NPY, ours), (TRITON, triton), (TRITON_ONE_INSTANCE, triton)]
    rows = []
    for size, count in SIZES.items():
        case = Case.of(count)
        rows += [_side_by_side(sides, case, size, clients, rounds) for clients in CLIENTS]
    return rows


def _side_by_side(sides: list[tuple[Contender, Server]], case: Case, size: str, clients: int, rounds: int) -> Row:
    rates: dict[str, list[float]] = {contender.name: [] for contender, _ in sides}
    cpu = dict.fromkeys(rates, 0.0)
    requests = dict.fromkeys(rates, 0)
    order = list(sides)
    for _ in range(rounds):
        random.shuffle(order)
        for contender, server in order:
            before = server.cpu_seconds()
            times, seconds = one_round(contender, server.port, case, clients)
            cpu[contender.name] += server.cpu_seconds() - before
            requests[contender.name] += len(times) + 1
            rates[contender.name].append(len(times) / seconds)
    return Row(
        size,
        clients,
        {name: median(samples) for name, samples in rates.items()},
        {name: taken / requests[name] for name, taken in cpu.items()},
    )


def rate_rows(found: list[Row]) -> list[list[str]]:
    """Return the rows of the table under `HEADER`."""
    rows = []
    for row in found:
        rates = row.per_second
        better = max(rates[TRITON.name], rates[TRITON_ONE_INSTANCE.name])
        rows.append(
            [
                row.size,
                str(row.clients),
                *(f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}" for rate in rates.values()),
                *(f"{rates[contender.name] / better:.2f}" for contender in (OURS_V2, OURS_NPY)),
            ]
        )
    return rows


def cpu_rows(found: list[Row]) -> list[list[str]]:
    """Return the rows of the table under `CPU_HEADER`."""
    return [
        [
            row.size,
            str(row.clients),
            *(f"{1e6 * seconds:,.0f}" for seconds in row.cpu_seconds.values()),
            f"{row.cpu_seconds[OURS_V2.name] / row.cpu_seconds[OURS_NPY.name]:.2f}",
        ]
        for row in found
    ]
