"""The service under load from several processes: `python -m tests.load [seconds] [--workers N]`, 300 s of 1 worker.

1. Mixed sizes, a tenth of all hostile: right answers, no 5xx but the 503 of admission, memory below processes and
   budget, and the same workers at the end.
2. How long requests of 1 KB take, alone and beside uploads of 64 MiB.
3. SIGTERM under load: no request that was sent is lost, exit 0.
4. SIGKILL under load, and a start: how long until it is ready.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import httpx

from tests.load.traffic import Tally, large, mixed, small, until_refused
from tests.support.process_memory import memory, proportional_memory
from tests.support.processes import children

ROOT = Path(__file__).parents[2]
PORT = 18_080
PROCESSES = 4
BUDGET = 256 << 20

Task = Callable[[int, float, int], Tally]


def start(workers: int, drain_seconds: float = 2.0) -> tuple[subprocess.Popen[bytes], float]:
    """Start the service. Return it and the seconds until it was ready."""
    began = time.monotonic()
    settings = {"port": PORT, "memory-bytes": BUDGET, "drain-seconds": drain_seconds, "log-level": "warning"}
    settings["workers"] = workers
    arguments = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    process = subprocess.Popen([sys.executable, "-m", "requant", "serve", *arguments], cwd=ROOT)
    while True:
        assert process.poll() is None, "the service ended"
        try:
            if httpx.get(f"http://127.0.0.1:{PORT}/v2/health/ready", verify=False).status_code == 200:
                return process, time.monotonic() - began
        except httpx.TransportError:
            pass
        time.sleep(0.02)


class MemoryWatch:
    """The memory of all processes of a service (PSS): at first, and at the peak, as seen twenty times a second.

    Of one process the system keeps the peak.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.first = self.peak = proportional_memory(process.pid)
        self.workers = children(process.pid)
        self._process = process
        self._resident = memory(process.pid)["VmRSS"]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self.peak = max(self.peak, proportional_memory(self._process.pid))

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if not self.workers:
            self.peak = self.first + memory(self._process.pid)["VmHWM"] - self._resident


def run(
    pool: ProcessPoolExecutor, seconds: float, tasks: list[Task], between: Callable[[], None] | None = None
) -> Tally:
    """Run tasks side by side, one in each process. `between` is called after half of the time."""
    futures = [pool.submit(task, PORT, seconds, seed) for seed, task in enumerate(tasks)]
    if between is not None:
        time.sleep(seconds / 2)
        between()
    total = Tally()
    for future in futures:
        total.add(future.result())
    return total


def percentile(tally: Tally, percent: int) -> float:
    """A percentile of the times, in milliseconds."""
    return 1e3 * statistics.quantiles(tally.seconds, n=100)[percent - 1]


def main() -> None:
    """Run all of it, print what was seen, and fail if anything was not as it has to be."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=300.0)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    seconds, workers = options.seconds, options.workers
    problems: list[str] = []
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        process, ready = start(workers)
        print(f"start: ready after {ready:.1f} s")
        run(pool, 2, [small] * PROCESSES)
        with MemoryWatch(process) as seen:
            total = run(pool, seconds, [mixed] * PROCESSES)
        print(f"1. {PROCESSES} processes, {workers} workers, {seconds:g} s: {sum(total.counts.values())} requests")
        for name, count in sorted(total.counts.items()):
            print(f"   {name}: {count}")
        print(f"   wrong: {len(total.wrong)}")
        print(
            f"   memory: {seen.first >> 20} MiB before, at the peak {seen.peak >> 20} MiB, "
            f"{(seen.peak - seen.first) >> 20} MiB more; the budget is {BUDGET >> 20} MiB"
        )
        problems += total.wrong
        if seen.peak - seen.first > BUDGET:
            problems.append("memory went beyond the budget")
        if children(process.pid) != seen.workers:
            problems.append("a worker was replaced")

        for name, beside in (("alone", []), ("beside uploads of 64 MiB", [large])):
            tasks: list[Task] = [small, *beside]
            futures = [pool.submit(task, PORT, 20.0, 0) for task in tasks]
            tallies = [future.result() for future in futures]
            times = ", ".join(f"p{percent} {percentile(tallies[0], percent):.2f} ms" for percent in (50, 99))
            print(f"2. 1 KB, {name}: {times}, {len(tallies[0].seconds)} requests; {dict(tallies[-1].counts)}")
            problems += [wrong for each in tallies for wrong in each.wrong]

        stopped = time.monotonic()

        def terminate() -> None:
            nonlocal stopped
            stopped = time.monotonic()
            process.send_signal(signal.SIGTERM)

        total = run(pool, 6, [until_refused] * PROCESSES, terminate)
        code = process.wait(timeout=60)
        answered = sum(total.counts.values())
        print(
            f"3. SIGTERM under load: {answered} answered, {len(total.lost)} lost, {len(total.wrong)} wrong; exit {code}"
        )
        print(f"   {time.monotonic() - stopped:.1f} s from the signal to the last client's end")
        problems += total.lost + total.wrong + ([] if code == 0 else [f"exit {code}"])

        process, _ = start(workers)
        run(pool, 4, [until_refused] * PROCESSES, process.kill)
        process.wait()
        process, ready = start(workers, 0)
        print(f"4. SIGKILL under load: ready again {ready:.1f} s after the start")
        process.terminate()
        problems += [] if process.wait(timeout=60) == 0 else ["exit code"]
    for problem in problems[:20]:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
