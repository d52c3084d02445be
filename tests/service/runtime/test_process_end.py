"""The end of the process within its stated time: while kernels compile, and while work runs that never ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.support.cases import EXHAUSTIVE

ROOT = Path(__file__).parents[3]

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Nothing is served: the last moment of idle connections, uvicorn's ticks, and a machine that is shared.
AT_ONCE = 10.0

_SERVE = "from requant_service.main import main; main()"

# The kernels are there at once.
_READY = """
from requant.kernels.jit import warmup
from requant.self_test import self_test
warmup.start_compilation = self_test.prepare_kernels = lambda *_: 0
"""

# A thread of each executor has work that outlives everything.
_STUCK = (
    _READY
    + """
import time
from requant_service.runtime.executor import Executor
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
from requant_service.runtime.runtime import Runtime
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


def members(session: int) -> list[str]:
    """The commands of the processes of a session. Workers have process groups of their own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(path.with_name("cmdline").read_text().replace("\0", " "))
    return found


def wait_for_the_end(session: int) -> None:
    """Wait until a session has no process."""
    deadline = time.monotonic() + AT_ONCE
    while left := members(session):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


@contextmanager
def service(folder: Path, program: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The service with an empty cache of kernels, in a session of its own."""
    port = free_port()
    command = [sys.executable, "-c", program, "--port", str(port), *arguments]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
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


@pytest.mark.skipif(sys.platform != "linux", reason="sessions are looked up in /proc")
@pytest.mark.exhaustive
@pytest.mark.parametrize("seconds", [0.7, 1.5, 2.5, 4.0])
@pytest.mark.parametrize("sent", [*SIGNALS, signal.SIGKILL], ids=lambda sent: sent.name)
@pytest.mark.parametrize("to_all", [False, True], ids=["process", "group"])
def test_workers_that_compile_end_with_the_service(
    sent: signal.Signals, to_all: bool, seconds: float, tmp_path: Path
) -> None:
    with service(tmp_path, _SERVE) as (process, _):
        time.sleep(seconds)
        if to_all:
            # As Ctrl-C in a terminal does.
            os.killpg(process.pid, sent)
        else:
            process.send_signal(sent)
        assert process.wait(timeout=AT_ONCE) in (0, -sent)
        wait_for_the_end(process.pid)
    assert not re.search("Traceback|Error", (tmp_path / "log").read_text()), (tmp_path / "log").read_text()


WRONG_ARGUMENTS = {
    ("--prot", "1"): "--prot: unknown flag; did you mean --port?",
    ("--threads", "0"): "--threads: ",
    ("--tls-key=x",): "--tls-key: TLS needs tls_certificate too",
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("arguments", WRONG_ARGUMENTS, ids=" ".join)
def test_arguments_are_read_before_kernels_are_compiled(arguments: tuple[str, ...], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, "-m", "requant", "serve", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode == 2
    assert len(lines) == 1
    assert lines[0].startswith(WRONG_ARGUMENTS[arguments])
    assert "| numba" not in done.stderr
    assert not cache.exists()


@pytest.mark.exhaustive
def test_a_setting_that_cannot_be_used_ends_the_service(tmp_path: Path) -> None:
    with service(tmp_path, _READY + _SERVE, "--tokens-file", str(tmp_path / "missing")) as (process, _):
        assert process.wait(timeout=60) == 2
    assert (tmp_path / "log").read_text().startswith("--tokens-file: ")


_WORKER = [sys.executable, "-m", "requant.kernels.jit.compile_worker"]


def test_a_worker_whose_parent_has_ended_ends_too() -> None:
    done = subprocess.run([*_WORKER, "1"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_worker_ends_with_its_input() -> None:
    """While it imports, and without a word."""
    with subprocess.Popen(
        [*_WORKER, str(os.getpid())], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as worker:
        assert worker.communicate(timeout=60) == (b"", b"")
    assert worker.returncode == 0
