"""What the worst requests within the default limits cost: `python -m tests.load.worst_requests [word ...]`.

With `--sixth 0` to 5 every sixth of them.

Starts the service as it comes, sends the cases of `tests.load.worst_cases` whose route or description has the words,
one at a time, and prints a table: seconds of CPU of the whole process, and seconds of work of one thread as the service
tells them in Server-Timing. The table of docs/load_tests.md is made with it (`--worst`: the most expensive request of
each route, and routes that cost little in one sentence).

Ends with 1 where a request is answered with anything but 200, which measures nothing, or where a POST route of the
OpenAPI document or a model has no case.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from requant_service.oip.models.registry import MODELS
from requant_service.openapi.__main__ import COMMITTED
from tests.load.case import Case
from tests.load.worst_cases import cases

ROOT = Path(__file__).parents[2]
PORT = 18_090
# Seconds of CPU below which a route has no line of its own.
_LITTLE = 0.15
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
    command = [sys.executable, "-m", "requant", "serve", "--port", str(port), "--log-level", "warning", *arguments]
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


def uncovered(routes: Iterable[str], paths: Iterable[str], models: Iterable[str]) -> list[str]:
    """Return what of `paths`, each of `models` in the place of `{model}`, none of `routes` is.

    A path that names a version too is covered by any model.
    """
    known, names, missing = set(routes), list(models), []
    for path in paths:
        wanted = (
            [path.replace("{model}", name) for name in names]
            if "{version}" not in path and "{model}" in path
            else [path]
        )
        for each in wanted:
            pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(each))
            if not any(re.fullmatch(pattern, route) for route in known):
                missing.append(each)
    return missing


def post_paths() -> list[str]:
    """Return the paths of the OpenAPI document that take POST, but for shared memory and checkpoint jobs.

    Their requests are short, and they are off by default.
    """
    paths = json.loads(COMMITTED.read_text())["paths"]
    return [
        path
        for path, item in paths.items()
        if "post" in item and not re.search("sharedmemory|/v1/checkpoints|/jobs", path)
    ]


def faults(found: Iterable[Measured], missing: Iterable[str]) -> list[str]:
    """Return why the cases do not measure what they should, a line each."""
    refused = [
        f"{each.case.route}, {each.case.what}: {each.status} {each.said}" for each in found if each.status != 200
    ]
    return refused + [f"{route}: there is no case" for route in missing]


_HEAD = "| route | request | MiB sent | CPU, s | work, s |\n| --- | --- | --- | --- | --- |"


def _row(each: Measured) -> str:
    case = each.case
    return f"| `{case.route}` | {case.what} | {each.sent / (1 << 20):.2f} | {each.cpu:.2f} | {each.work:.2f} |"


def _print_worst(found: Iterable[Measured]) -> None:
    """Print the most expensive request of each route, those of little cost as their number."""
    worst: dict[str, Measured] = {}
    for each in found:
        kept = worst.get(each.case.route)
        if kept is None or kept.cpu < each.cpu:
            worst[each.case.route] = each
    print(_HEAD)
    for each in sorted(worst.values(), key=lambda each: -each.cpu):
        if each.cpu >= _LITTLE:
            print(_row(each))
    others = sum(each.cpu < _LITTLE for each in worst.values())
    print(f"\nThe {others} other routes and models take less than {_LITTLE} s of CPU.")


def main() -> None:
    """Send them all, or those that have all of the words."""
    # So that the service ends too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*")
    parser.add_argument("--worst", action="store_true")
    parser.add_argument("--sixth", type=int, choices=range(6))
    given = parser.parse_args()
    made = list(cases())
    chosen = made if given.sixth is None else made[given.sixth :: 6]
    found = []
    process = start()
    try:
        for case in chosen:
            if all(word in f"{case.route} {case.what}" for word in given.words):
                found.append(measure(process, case))
                print(found[-1].status, _row(found[-1]), file=sys.stderr, flush=True)
    finally:
        process.terminate()
        process.wait()
    if given.worst:
        _print_worst(found)
    else:
        print(_HEAD, *map(_row, sorted(found, key=lambda each: -each.cpu)), sep="\n")
    wrong = faults(found, uncovered([case.route for case in made], post_paths(), MODELS))
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
