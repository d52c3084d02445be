"""`python -m benchmarks.triton.report`: all that is measured beside Triton, as Markdown."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from urllib.request import urlopen

from benchmarks.section import Section, table
from benchmarks.triton.exchanges import GRPC, NPY, V2, Row, cpu_table, over_grpc, over_http, rate_table
from benchmarks.triton.servers import TRITON_PYTHON, WORKERS, running
from benchmarks.triton.shared_memory import Row as SharedMemoryRow
from benchmarks.triton.shared_memory import shared_memory_table, through_shared_memory
from requant.kernels.jit.warmup import compile_kernels

_TITLE = "Triton Inference Server"
_LEAST, _LEAST_OF_LARGE = 1.3, 1.8
_LEAST_OF_SMALL_CALLS, _LEAST_OF_LARGE_CALLS = 1.0, 1.3
_MOST_OF_KERNEL, _MOST_OF_ONE_WORKER = 1.3, 1.05


def report() -> Section:
    """Measure, and return the section. Without Triton, it says why."""
    if not TRITON_PYTHON.exists():
        return _without("there is no .venv-triton, which takes Python 3.11 on x86-64 Linux (`make .venv-triton/done`)")
    with ExitStack() as stack:
        try:
            servers = stack.enter_context(running())
        except RuntimeError as error:
            return _without(str(error))
        with urlopen(f"http://127.0.0.1:{servers.triton.server.port}/v2") as reply:
            version = json.load(reply)["version"]
        http = over_http(servers.ours.server, servers.one_worker, servers.triton.server)
        grpc = over_grpc(servers.ours, servers.triton)
        shared = through_shared_memory(servers.ours, servers.triton)
    parts = [
        f"Triton Inference Server {version}; docs/performance.md says how it runs. Ours has {WORKERS} workers, where "
        "nothing else is said.\n",
        "### Goals beside Triton\n",
        table(["goal", "wanted", "measured, in the worst row", ""], _goals(http, grpc, shared)),
        "### V2 and .npy\n",
        rate_table(http, (V2, NPY)),
        cpu_table(http),
        "### gRPC\n",
        rate_table(grpc, (GRPC,)),
        cpu_table(grpc),
        "### Shared memory\n",
        shared_memory_table(shared),
    ]
    data = {
        "version": version,
        "http": [row.as_json() for row in http],
        "grpc": [row.as_json() for row in grpc],
        "shared_memory": [row.as_json() for row in shared],
    }
    return Section(_TITLE, "\n".join(parts), data)


def _goals(http: Sequence[Row], grpc: Sequence[Row], shared: Sequence[SharedMemoryRow]) -> list[list[str]]:
    """Return a row for each goal, with the worst that was measured."""
    large = [row for row in http if row.size != "1 KB"]
    small_calls = [row for row in grpc if row.size == "1 KB"]
    large_calls = [row for row in grpc if row.size in ("1 MB", "64 MB")]
    lines = []
    for side, which, rows, wanted in (
        (V2, "", http, _LEAST),
        (NPY, "", http, _LEAST),
        (V2, ", from 100 KB on", large, _LEAST_OF_LARGE),
        (NPY, ", from 100 KB on", large, _LEAST_OF_LARGE),
        (GRPC, ", 1 KB", small_calls, _LEAST_OF_SMALL_CALLS),
        (GRPC, ", from 1 MB on", large_calls, _LEAST_OF_LARGE_CALLS),
    ):
        least, where = min((row.times_triton(side), row.name) for row in rows)
        lines.append(_goal(f"{side} / Triton's better{which}", wanted, least, where, least >= wanted))
    most, where = max((row.times_kernel(), row.protocol) for row in shared)
    lines.append(_goal("call through shared memory / kernel", _MOST_OF_KERNEL, most, where, most <= _MOST_OF_KERNEL))
    most, where = max((row.times_one_worker(), row.name) for row in http)
    name = f"CPU of a request with {WORKERS} workers / with one"
    return [*lines, _goal(name, _MOST_OF_ONE_WORKER, most, where, most <= _MOST_OF_ONE_WORKER)]


def _goal(name: str, wanted: float, measured: float, where: str, reached: bool) -> list[str]:
    return [name, f"{wanted:.2f}", f"{measured:.2f} ({where})", "reached" if reached else "not reached"]


def _without(reason: str) -> Section:
    print(f"Nothing is measured beside Triton: {reason}", file=sys.stderr)
    return Section(_TITLE, f"Not measured: {reason.splitlines()[0].rstrip(':')}.\n", None)


if __name__ == "__main__":
    compile_kernels()
    print(report().markdown)
