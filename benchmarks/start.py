"""How long a start takes: of core with its kernels, compiled or from the cache, and of the service until ready.

A start is as in the image: Python's bytecode is there. To make it anew for 300 files takes half a second.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.section import Section, table

_PROGRAM = """
from time import process_time
from requant.kernels.jit.warmup import compile_kernels
from requant.self_test.self_test import run_self_test
imported = process_time()
count = compile_kernels()
compiled = process_time()
run_self_test()
print(count, imported, compiled, process_time())
"""
_WARM_STARTS = 5
_LONGEST_START = 120.0


def installed(folder: str) -> dict[str, str]:
    """Return an environment in which Python keeps its bytecode in a folder, as an image has it from its build."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment | {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}


def _start_of_core(cache: str) -> tuple[int, list[float]]:
    """Return the number of specialisations, and seconds of CPU: all, for imports, for kernels, for known answers."""
    environment = installed(cache) | {"NUMBA_CACHE_DIR": cache}
    run = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, check=True, capture_output=True, text=True)
    count, imported, compiled, tested = map(float, run.stdout.split())
    return int(count), [tested, imported, compiled - imported, tested - compiled]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=1) as reply:
            ready: bool = reply.status == 200
            return ready
    except (URLError, OSError):
        return False


def _start_of_service(cache: str) -> list[float]:
    """Return the seconds until the service is ready, and how much CPU it had when it had stopped again."""
    port = _free_port()
    environment = installed(cache) | {"NUMBA_CACHE_DIR": cache, "REQUANT_PORT": str(port), "REQUANT_DRAIN_SECONDS": "0"}
    begun = perf_counter()
    server = subprocess.Popen([sys.executable, "-m", "requant", "serve"], env=environment, stderr=subprocess.DEVNULL)
    try:
        while not _is_ready(port):
            if perf_counter() - begun > _LONGEST_START or server.poll() is not None:
                raise RuntimeError("the service did not become ready")
            sleep(0.01)
        waited = perf_counter() - begun
    finally:
        server.send_signal(signal.SIGTERM)
        _, _, usage = os.wait4(server.pid, 0)
        server.returncode = 0
    return [waited, usage.ru_utime + usage.ru_stime]


def start() -> Section:
    """Return the section: one cold start, and medians of warm ones."""
    with TemporaryDirectory() as cache:
        count, cold = _start_of_core(cache)
        warm = [_start_of_core(cache)[1] for _ in range(_WARM_STARTS)]
        _start_of_service(cache)
        services = [_start_of_service(cache) for _ in range(_WARM_STARTS)]
    medians = [median(parts) for parts in zip(*warm, strict=True)]
    waited, used = (median(parts) for parts in zip(*services, strict=True))
    rows = [
        [name, *(f"{seconds:.2f} s" for seconds in parts)]
        for name, parts in (("everything is compiled", cold), ("kernels come from the cache", medians))
    ]
    header = ["start of core, CPU time", "all", "imports", "kernels", "known answers"]
    note = (
        f"{count} specialisations. The service, with its kernels in the cache, was ready after {waited:.2f} s (median "
        f"of {_WARM_STARTS}), in which it had {used:.2f} s of CPU; imports are included.\n"
    )
    data = {"specialisations": count, "cold": cold, "warm": medians, "service": {"ready": waited, "cpu": used}}
    return Section("Start", f"{table(header, rows)}\n{note}", data)
