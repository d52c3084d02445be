"""What the worst requests within the default limits cost: `python -m tests.load.worst_requests [word ...]`.

Starts the service as it comes, sends the cases of `tests.load.worst_cases` whose route or description has the words,
one at a time, and prints a table: seconds of work of one thread as the service tells them in Server-Timing, seconds of
CPU of its whole process, and what was answered. The table of docs/operation.md is made with it (`--worst`: the most
expensive of each route only).
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tests.load.worst_cases import Case, cases

ROOT = Path(__file__).parents[2]
PORT = 18_090
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    """One request, in seconds."""

    case: Case
    status: int
    work: float
    cpu: float
    wall: float
    sent: int
    said: str


def start(port: int = PORT, **settings: str) -> subprocess.Popen[bytes]:
    """Start the service, and wait until it is ready."""
    arguments = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", value)]
    command = [sys.executable, "-m", "service", "--port", str(port), "--log-level", "warning", *arguments]
    process = subprocess.Popen(command, cwd=ROOT)
    while True:
        assert process.poll() is None, "the service ended"
        try:
            if answer(port, "GET", "/v2/health/ready")[0] == 200:
                return process
        except OSError:
            time.sleep(0.05)


def answer(
    port: int, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Send a request on a connection of its own. Return status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        connection.close()


def _cpu(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def measure(process: subprocess.Popen[bytes], case: Case) -> Measured:
    """Send a case and read all of its reply."""
    body, headers = case.make()
    path = case.route + (f"?{urlencode(case.query)}" if case.query else "")
    cpu, begun = _cpu(process), time.perf_counter()
    status, found, reply = answer(PORT, "POST", path, body, headers)
    wall = time.perf_counter() - begun
    work = re.search(r"work;dur=([0-9.]+)", found.get("server-timing", ""))
    said = "" if status == 200 else reply[:200].decode("utf-8", "replace")
    return Measured(case, status, float(work[1]) / 1e3 if work else 0.0, _cpu(process) - cpu, wall, len(body), said)


def _row(each: Measured) -> str:
    case = each.case
    return (
        f"| `{case.route}` | {case.what} | {each.sent / (1 << 20):.2f} | {each.status} | {each.work:.2f} | "
        f"{each.cpu:.2f} | {each.wall:.2f} |"
    )


def main() -> None:
    """Send them all, or those that have all of the words."""
    # So that the service ends too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    process = start()
    found = []
    try:
        for case in cases():
            if all(word in f"{case.route} {case.what}" for word in words):
                found.append(measure(process, case))
                print(_row(found[-1]), found[-1].said, file=sys.stderr, flush=True)
    finally:
        process.terminate()
        process.wait()
    print(
        "| route | request | MiB | status | work, s | CPU, s | wall, s |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    worst: dict[str, Measured] = {}
    for each in found:
        kept = worst.get(each.case.route)
        if kept is None or kept.cpu < each.cpu:
            worst[each.case.route] = each
    for each in sorted(worst.values() if "--worst" in sys.argv else found, key=lambda each: -each.cpu):
        print(_row(each))


if __name__ == "__main__":
    main()
