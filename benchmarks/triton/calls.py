"""Calls of both servers by tritonclient: gRPC, and system shared memory beside the kernel on the same pages."""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.http.case import HEADER_BYTES, PARAMETERS, Case, plan_for
from benchmarks.http.exchanges import ROUNDS, SIZES
from benchmarks.http.server import ROOT
from benchmarks.triton.servers import MODEL, MODEL_OF_ONE_INSTANCE, TRITON_PYTHON, Running
from requant.plan.plan import Plan

_SECONDS = 0.4
_FEWEST = 3
_SHARED = "64 MB"
_GRPC = ("1 KB", "64 MB")
_SERVERS = ("ours", "triton")
# Where POSIX shared memory is on Linux: shm_open(3).
_SHARED_MEMORY = Path("/dev/shm")

HEADER = ["one client: tritonclient", "ours (ms)", "Triton (ms)", "times faster than Triton", "times the kernel's time"]


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of the seconds of a call; of the kernel alone, where it runs on the same pages."""

    protocol: str
    size: str
    shared_memory: bool
    seconds: dict[str, float]
    kernel: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return asdict(self)


class _Client:
    """The process that calls. `regions` are the keys of the shared memory of source and result."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.regions: dict[str, str] = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the process of tritonclient has ended: see above")
        return json.loads(line)

    def calls(self, server: str, protocol: str, size: str, *, shared: bool) -> list[float]:
        """Return the seconds of each call."""
        assert self.process.stdin is not None
        print(json.dumps([server, protocol, size, shared, _SECONDS]), file=self.process.stdin, flush=True)
        answer: list[float] = self._answer()
        return answer


@contextmanager
def _client(ours: Running, triton: Running) -> Iterator[_Client]:
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for size in {_SHARED, *_GRPC}:
            case, paths = Case.of(SIZES[size]), [Path(folder, f"{size} {name}.npy") for name in "xy"]
            for path, content in zip(paths, (case.npy, case.expected), strict=True):
                path.write_bytes(content)
            files[size] = [str(path) for path in paths]
        models = {"ours": (ours, MODEL, PARAMETERS), "triton": (triton, MODEL_OF_ONE_INSTANCE, None)}
        servers = {
            name: {
                "http": f"127.0.0.1:{running.server.port}",
                "grpc": f"127.0.0.1:{running.grpc_port}",
                "model": model,
                "parameters": parameters,
            }
            for name, (running, model, parameters) in models.items()
        }
        setup = json.dumps({"servers": servers, "files": files, "shared": _SHARED})
        with subprocess.Popen(
            [str(TRITON_PYTHON), "-m", "benchmarks.triton.client", setup],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            yield _Client(process)


def _mapped(key: str, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.asarray(np.memmap(_SHARED_MEMORY / key, dtype, "r+", shape=(count,)))


def _kernel_calls(plan: Plan, source: NDArray[Any], target: NDArray[Any]) -> list[float]:
    taken: list[float] = []
    started = now = perf_counter()
    while now - started < _SECONDS or len(taken) < _FEWEST:
        begun = perf_counter()
        plan.run(source, target)
        now = perf_counter()
        taken.append(now - begun)
    return taken


def calls(ours: Running, triton: Running, rounds: int = ROUNDS) -> list[Row]:
    """Measure. Raise AssertionError or RuntimeError if a result is wrong or a call fails."""
    with _client(ours, triton) as client:
        rows = [_side_by_side(client, "grpc", size, rounds) for size in _GRPC]
        plan = plan_for((SIZES[_SHARED] - HEADER_BYTES) // 4)
        source = _mapped(client.regions["x"], plan.elements, plan.input_dtype)
        target = _mapped(client.regions["y"], plan.elements, plan.output_dtype)
        kernel = partial(_kernel_calls, plan, source, target)
        rows += [_side_by_side(client, protocol, _SHARED, rounds, kernel) for protocol in ("http", "grpc")]
    return rows


def _side_by_side(
    client: _Client, protocol: str, size: str, rounds: int, kernel: Callable[[], list[float]] | None = None
) -> Row:
    samples: dict[str, list[float]] = {name: [] for name in (*_SERVERS, "kernel")}
    order = [*_SERVERS, *(["kernel"] if kernel else [])]
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            if name == "kernel":
                assert kernel is not None
                taken = kernel()
            else:
                taken = client.calls(name, protocol, size, shared=kernel is not None)
            samples[name].append(median(taken))
    medians = {name: median(samples[name]) for name in _SERVERS}
    return Row(protocol, size, kernel is not None, medians, median(samples["kernel"]) if kernel else None)


def call_rows(found: list[Row]) -> list[list[str]]:
    """Return the rows of the table under `HEADER`."""
    return [
        [
            f"{row.protocol}, {row.size}{' through system shared memory' if row.shared_memory else ''}",
            *(f"{1e3 * row.seconds[name]:.3f}" for name in _SERVERS),
            f"{row.seconds['triton'] / row.seconds['ours']:.2f}",
            "-" if row.kernel is None else f"{row.seconds['ours'] / row.kernel:.2f}",
        ]
        for row in found
    ]
