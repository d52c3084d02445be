"""What all tests share: the service as a process on a free port, and how tests are distributed over processes."""

from __future__ import annotations

import gc
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import isfunction
from itertools import groupby
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx
import pytest
from hypothesis import settings

from tests.support.cases import DAYS, EXHAUSTIVE, MINUTES, TODAY, WHOLE, examples

# A shared machine stalls at times; how long an example takes says nothing about the code. A sample is always the same.
settings.register_profile("sample", deadline=None, max_examples=examples(100), derandomize=True)
settings.register_profile("exhaustive", deadline=None)
settings.load_profile("exhaustive" if EXHAUSTIVE else "sample")

# Environments of clients have no kernels.
if find_spec("numba"):
    from tests.support.kernel_arguments import check_kernel_arguments

    check_kernel_arguments()

ROOT = Path(__file__).parents[1]
# Processes that tests start find the same sources, whatever is installed.
os.environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / each) for each in ("core", "service"))
START_SECONDS = 600
_STARTED = time.monotonic()
# Files of tests that measure time, or use all cores. One process takes them, so that they do not disturb each other.
TIMED = {
    f"tests/{path}.py"
    for path in (
        "checkpoint_jobs/test_storage",
        "hostile/test_page",
        "hostile/test_under_attack",
        "service/operations/test_worst_requests",
        "service/runtime/test_cold_start",
        "service/runtime/test_deployment",
        "service/runtime/test_executor",
        "service/runtime/test_process_end",
        "service/runtime/test_request_context",
        "service/server/test_draining_server",
        "service/server/test_pipelining",
        "service/server/test_read_timeouts",
        "service/server/test_unread_replies",
    )
}


WORKERS = os.environ.get("SERVICE_WORKERS", "1")
"""How many worker processes the tests' services have. If several, only tests that start a service run."""


@dataclass(frozen=True)
class Server:
    """A running service."""

    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        """A plain connection, for what an HTTP client would not send."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"the service ended with exit code {process.returncode}")
        try:
            if httpx.get(f"{url}/healthz", verify=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    pytest.fail(f"the service was not ready after {START_SECONDS} s")


@contextmanager
def started(log: Path, *arguments: str, probes: str | None = None) -> Iterator[tuple[Server, subprocess.Popen[bytes]]]:
    """Start `requant serve` and wait until it is ready. At the end it has to stop by itself on SIGTERM.

    `probes`: the URL of the metrics port, for a service that listens on no other.
    """
    port = free_port()
    with log.open("wb") as output:
        # Clients that are installed apart have not what the service needs; another interpreter serves them.
        python = os.environ.get("SERVER_PYTHON", sys.executable)
        command = [python, "-m", "requant", "serve", "--port", str(port), "--workers", WORKERS, *arguments]
        with subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT) as process:
            running = Server(port, "https" if "--tls-key" in arguments else "http")
            try:
                _wait_until_ready(probes or running.url, process)
                yield running, process
            finally:
                process.terminate()
                process.wait(timeout=60)
    # Tracebacks, and the warnings of packages (`requant_service.runtime.logs`).
    assert not re.search("Traceback|Warning at ", log.read_text()), log.read_text()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service with its defaults, once for all tests."""
    with started(tmp_path_factory.mktemp("service") / "log", "--drain-seconds", "0") as (running, _):
        yield running
        assert httpx.get(f"{running.url}/healthz", verify=False).status_code == 200


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    """An HTTP client of the running service."""
    # Plain HTTP needs no certificates, and reading them takes longer than most tests.
    with httpx.Client(base_url=server.url, timeout=120, verify=False) as connected:
        yield connected


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files of other days."""
    if DAYS == 1 or not collection_path.name.startswith("test_"):
        return None
    name = collection_path.relative_to(ROOT).as_posix()
    # Those that take one process share the days evenly.
    place = sorted(TIMED).index(name) if name in TIMED else crc32(name.encode())
    return None if place % DAYS == TODAY % DAYS else True


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A day without a file of a folder is no failure."""
    if DAYS > 1 and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Skip what begins after `MINUTES`, before its fixtures are made."""
    if time.monotonic() > _STARTED + 60 * MINUTES:
        pytest.skip(f"not begun within {MINUTES:g} minutes")


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _timed(nodeid: str) -> bool:
    return _file_of(nodeid) in TIMED


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Hide from the collector of garbage what pytest keeps to the end.

    Thousands of tests are millions of objects, and to look through them takes half a second each time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def _starts_service(item: pytest.Item) -> bool:
    """Return whether a test has a service: by a fixture, or in a file that calls `started` itself or by a helper."""
    assert isinstance(item, pytest.Function)
    if not {"server", "grpc_server"}.isdisjoint(item.fixturenames):
        return True
    helpers = {each.__module__ for each in vars(item.module).values() if isfunction(each)} - {__name__}
    return any(getattr(sys.modules[name], "started", None) is started for name in helpers)


def _sampled(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Of each test that is marked `sample(n)`, take at most n cases, the first among them, evenly spread."""
    for _, cases in groupby(items, lambda item: item.nodeid.partition("[")[0]):
        found = list(cases)
        mark = found[0].get_closest_marker("sample")
        # As in `tests.support.cases`, an odd stride visits both halves of whatever alternates.
        yield from found[:: -(-len(found) // mark.args[0]) | 1] if mark else found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what one process has to do alone."""
    if not EXHAUSTIVE:
        items[:] = _sampled(items)
    if not WHOLE:
        # In another order each day, so that it is not the same files that come too late.
        items.sort(key=lambda item: crc32(f"{TODAY} {_file_of(item.nodeid)}".encode()))
    items.sort(key=lambda item: not _timed(item.nodeid))
    if WORKERS != "1":
        config.hook.pytest_deselected(items=[item for item in items if not _starts_service(item)])
        items[:] = filter(_starts_service, items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep `TIMED` in one process. xdist 3.8 has groups for that, which do not work with pytest 9.2."""
    from xdist.scheduler import LoadFileScheduling

    class LoadFileOrTimed(LoadFileScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            return "timed" if _timed(nodeid) else super()._split_scope(nodeid)

    return LoadFileOrTimed(config, log) if config.getoption("dist") == "loadfile" else None
