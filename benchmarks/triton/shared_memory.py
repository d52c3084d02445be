"""Calls of both servers by tritonclient through system shared memory, beside the kernel on the same pages."""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
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
from benchmarks.section import table
from benchmarks.triton.servers import MODEL, MODEL_OF_ONE_INSTANCE, TRITON_PYTHON, Running
from requant.plan.plan import Plan

_SECONDS = 0.4
_FEWEST = 3
_SIZE = "64 MB"
_PROTOCOLS = ("http", "grpc")
_SERVERS = ("ours", "triton")
# Where POSIX shared memory is on Linux: shm_open(3).
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Row:
    """A protocol: medians of the seconds of a call, and of the kernel alone."""

    protocol: str
    seconds: dict[str, float]
    kernel: float

    def times_kernel(self) -> float:
        """Return the time of our call by that of the kernel."""
        return self.seconds["ours"] / self.kernel

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

    def calls(self, server: str, protocol: str) -> list[float]:
        """Return the seconds of each call."""
        assert self.process.stdin is not None
        print(json.dumps([server, protocol, _SECONDS]), file=self.process.stdin, flush=True)
        answer: list[float] = self._answer()
        return answer


@contextmanager
def _client(ours: Running, triton: Running) -> Iterator[_Client]:
    with tempfile.TemporaryDirectory() as folder:
        case, files = Case.of(SIZES[_SIZE]), [Path(folder, f"{name}.npy") for name in "xy"]
        for path, content in zip(files, (case.npy, case.expected), strict=True):
            path.write_bytes(content)
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
        setup = json.dumps({"servers": servers, "files": [str(path) for path in files]})
        with subprocess.Popen(
            [str(TRITON_PYTHON), "-m", "benchmarks.triton.shared_memory_client", setup],
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


def through_shared_memory(ours: Running, triton: Running, rounds: int = ROUNDS) -> list[Row]:
    """Measure. Raise AssertionError or RuntimeError if a result is wrong or a call fails."""
    with _client(ours, triton) as client:
        plan = plan_for((SIZES[_SIZE] - HEADER_BYTES) // 4)
        source = _mapped(client.regions["x"], plan.elements, plan.input_dtype)
        target = _mapped(client.regions["y"], plan.elements, plan.output_dtype)
        kernel = partial(_kernel_calls, plan, source, target)
        return [_side_by_side(client, protocol, rounds, kernel) for protocol in _PROTOCOLS]


def _side_by_side(client: _Client, protocol: str, rounds: int, kernel: Callable[[], list[float]]) -> Row:
    measures = {name: partial(client.calls, name, protocol) for name in _SERVERS} | {"kernel": kernel}
    samples: dict[str, list[float]] = {name: [] for name in measures}
    order = list(measures)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            samples[name].append(median(measures[name]()))
    return Row(protocol, {name: median(samples[name]) for name in _SERVERS}, median(samples["kernel"]))


def shared_memory_table(rows: Sequence[Row]) -> str:
    """Return the table."""
    header = [f"{_SIZE} through system shared memory, one client", "ours (ms)", "Triton (ms)", "kernel (ms)"]
    return table(
        [*header, "times faster than Triton", "times the kernel's time"],
        [
            [
                row.protocol,
                *(f"{1e3 * seconds:.3f}" for seconds in (*row.seconds.values(), row.kernel)),
                f"{row.seconds['triton'] / row.seconds['ours']:.2f}",
                f"{row.times_kernel():.2f}",
            ]
            for row in rows
        ],
    )
