"""Servers as processes: started on a free port, waited for, measured from outside, and stopped."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.http.case import Case, npy_path
from benchmarks.http.client import Connection
from benchmarks.start import installed

ROOT = Path(__file__).parents[2]
SOURCES = os.pathsep.join(map(str, (ROOT, ROOT / "core", ROOT / "service")))
MLSERVER_PYTHON = ROOT / ".venv-mlserver" / "bin" / "python"
_START_SECONDS = 300
# For the starts of one run.
_BYTECODE = tempfile.TemporaryDirectory()


@dataclass(frozen=True, slots=True)
class Contender:
    """A server: how to start it, what it is sent, and how its reply is checked."""

    name: str
    command: Callable[[int], list[str]]
    request: Callable[[Case], bytes]
    check: Callable[[Case, bytes], None]
    largest: int = 1 << 62
    environment: Mapping[str, str] = field(default_factory=dict)


def _module(*arguments: str) -> Callable[[int], list[str]]:
    return lambda port: [sys.executable, "-m", *arguments, str(port)]


def _mlserver(port: int) -> list[str]:
    folder = Path(tempfile.mkdtemp(prefix="mlserver-"))
    settings = {
        "http_port": port,
        "grpc_port": free_port(),
        "metrics_port": free_port(),
        "parallel_workers": 0,
        "debug": False,
    }
    model = {"name": "quantize", "implementation": "benchmarks.http.mlserver_model.Quantize"}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps(model))
    return [str(MLSERVER_PYTHON.with_name("mlserver")), "start", str(folder)]


OURS = Contender("ours", _module("requant", "serve", "--port"), lambda case: case.as_npy(npy_path()), Case.check_npy)
OURS_JSON = Contender(
    "ours, JSON",
    _module("requant", "serve", "--port"),
    lambda case: case.as_json("/v1/quantize"),
    Case.check_json,
    largest=5 << 20,
)
FLOOR = Contender("floor", _module("benchmarks.http.floor"), lambda case: case.as_npy("/"), Case.check_length)
HEART = Contender("heart", _module("benchmarks.http.heart"), OURS.request, Case.check_npy)
# glibc's own names for what requant_service.server.malloc sets.
_KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_TOP_PAD_": str(8 << 20),
}
KEEPING_FLOOR = replace(FLOOR, name="floor, memory kept", environment=_KEEP_MEMORY)
RAW = Contender("raw", _module("benchmarks.http.raw"), lambda case: case.as_npy("/"), Case.check_npy)
STRAIGHTFORWARD = Contender(
    "straightforward",
    _module("benchmarks.http.straightforward"),
    lambda case: case.as_npy("/quantize"),
    Case.check_npy,
)
MLSERVER = Contender("mlserver", _mlserver, lambda case: case.as_v2("/v2/models/quantize/infer"), Case.check_v2)


def contenders() -> list[Contender]:
    """Return those that are installed."""
    return [
        OURS,
        FLOOR,
        KEEPING_FLOOR,
        RAW,
        STRAIGHTFORWARD,
        OURS_JSON,
        *([MLSERVER] if MLSERVER_PYTHON.exists() else []),
    ]


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _with_children(process: int) -> Iterator[int]:
    yield process
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from _with_children(int(child))


def _cpu_seconds(process: int) -> float:
    # The name in front may hold spaces. proc_pid_stat(5): state is the third field, utime and stime the 14th and 15th.
    _, _, fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")
    return sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")


class Server:
    """A running server. `first` is the request of its first exchange, by which it is known to be ready."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.port = free_port()
        self.started = time.perf_counter()
        environment = {**installed(_BYTECODE.name), **contender.environment, "PYTHONPATH": SOURCES}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed by stop
        self.process = subprocess.Popen(
            contender.command(self.port), cwd=ROOT, env=environment, stdout=self._log, stderr=subprocess.STDOUT
        )

    def wait(self, case: Case) -> float:
        """Wait until the server answers the case with 200 and the right bits. Return the seconds since its start."""
        request = self.contender.request(case)
        deadline = time.perf_counter() + _START_SECONDS
        while True:
            try:
                connection = Connection(self.port, request)
            except ConnectionRefusedError:
                reply = None
            else:
                reply = connection.try_exchange()
                connection.close()
            if reply is not None:
                self.contender.check(case, reply)
                return time.perf_counter() - self.started
            if self.process.poll() is not None or time.perf_counter() > deadline:
                raise RuntimeError(f"{self.contender.name} did not start:\n{self.log()[-2000:]}")
            time.sleep(0.01)

    def log(self) -> str:
        """Return what the server has written."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process and those that it has started have taken, in steps of 10 ms."""
        return sum(map(_cpu_seconds, _with_children(self.process.pid)))

    def resident(self) -> int:
        """Return the bytes of memory that the process holds now."""
        return self._status("VmRSS")

    def forget_peak(self) -> None:
        """Let the peak begin anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak(self) -> int:
        """Return the most bytes of memory that the process has held since `forget_peak`."""
        return self._status("VmHWM")

    def _status(self, field: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) << 10
        raise RuntimeError(f"no {field}")

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()
