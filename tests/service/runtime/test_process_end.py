"""The end of the process within its stated time: while kernels compile, and while work runs that never ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.support.cases import EXHAUSTIVE

ROOT = Path(__file__).parents[3]

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Nothing is served: the last moment of idle connections, uvicorn's ticks, and a machine that is shared.
AT_ONCE = 10.0

_SERVE = "from service.__main__ import main; main()"

# The kernels are there at once.
_READY = """
from core.kernels.jit import warmup
from core.self_test import self_test
warmup.start_compilation = self_test.prepare_kernels = lambda *_: 0
"""

# A thread of each executor has work that outlives everything.
_STUCK = (
    _READY
    + """
import time
from service.runtime.executor import Executor
begin = Executor.start
def start(compute):
    begin(compute)
    for pool in (compute._arrays, compute._texts, compute._modules):
        pool.executor.submit(time.sleep, 600)
Executor.start = start
"""
)

# A task that does not let itself be cancelled.
_STUBBORN = (
    _READY
    + """
import asyncio
from service.runtime.runtime import Runtime
async def stays():
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
begin = Runtime.warm_up
async def warm_up(runtime):
    runtime.stays = asyncio.create_task(stays())
    await begin(runtime)
Runtime.warm_up = warm_up
"""
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def status(port: int, path: str) -> int:
    """The status of a reply, or 0 while there is none."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return int(reply.status)
    except URLError as error:
        return int(getattr(error, "code", 0))
    except OSError:
        return 0


@contextmanager
def service(folder: Path, program: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The service with an empty cache of kernels."""
    port = free_port()
    command = [sys.executable, "-c", program, "--port", str(port), *arguments]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            yield process, port
        finally:
            process.kill()
            process.wait()


def ended(process: subprocess.Popen[bytes], sent: signal.Signals, within: float) -> float:
    """Send a signal, and return the seconds that the process took to end with 0."""
    began = time.monotonic()
    process.send_signal(sent)
    assert process.wait(timeout=within) == 0
    return time.monotonic() - began


def wait_for(process: subprocess.Popen[bytes], port: int, path: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while status(port, path) != 200:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.exhaustive
@pytest.mark.parametrize("sent", SIGNALS if EXHAUSTIVE else SIGNALS[1:], ids=lambda sent: sent.name)
def test_it_ends_at_once_while_kernels_compile(sent: signal.Signals, tmp_path: Path) -> None:
    with service(tmp_path, _SERVE) as (process, port):
        wait_for(process, port, "/v2/health/live")
        time.sleep(1)
        assert status(port, "/v2/health/ready") == 503
        ended(process, sent, AT_ONCE)
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.exhaustive
@pytest.mark.parametrize("seconds", [0.3, 1.0])
def test_it_ends_at_once_before_it_listens(seconds: float, tmp_path: Path) -> None:
    with service(tmp_path, f"import time; began = time.monotonic(); {_SERVE}") as (process, _):
        time.sleep(seconds)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        # Before Python runs main() the signal has the effect that it has on every program.
        assert process.wait(timeout=AT_ONCE) in (0, -signal.SIGTERM)
        assert time.monotonic() - began < AT_ONCE
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.exhaustive
@pytest.mark.parametrize("sent", SIGNALS if EXHAUSTIVE else SIGNALS[:1], ids=lambda sent: sent.name)
@pytest.mark.parametrize("stuck", [_STUCK, _STUBBORN], ids=["executors", "task"])
def test_work_that_never_ends_is_abandoned_in_time(stuck: str, sent: signal.Signals, tmp_path: Path) -> None:
    with service(tmp_path, stuck + _SERVE, "--drain-seconds", "0.5", "--shutdown-seconds", "1") as (process, port):
        wait_for(process, port, "/v2/health/ready")
        assert ended(process, sent, 20) < 0.5 + 1 + 2 + AT_ONCE
    log = (tmp_path / "log").read_text()
    assert "Shutdown timed out; unfinished work was abandoned." in log
    assert "Traceback" not in log


def test_a_ready_service_ends_on_an_interrupt_without_a_traceback(tmp_path: Path) -> None:
    with service(tmp_path, _READY + _SERVE) as (process, port):
        wait_for(process, port, "/v2/health/ready")
        ended(process, signal.SIGINT, AT_ONCE)
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert "abandoned" not in log


@pytest.mark.exhaustive
def test_a_wrong_setting_is_told_while_kernels_compile(tmp_path: Path) -> None:
    with service(tmp_path, _SERVE, "--threads", "0") as (process, _):
        assert process.wait(timeout=60) == 1
    assert "threads: " in (tmp_path / "log").read_text()
