"""Load kernels from the cache, and compile the others in worker processes.

The compiler holds the GIL: in a serving process it would block the event loop for seconds at a time. Worker processes,
one per CPU, compile into the cache instead, and this process loads the machine code, a few milliseconds per kernel. A
kernel that is called before its turn is compiled next, and only its caller waits.

Workers begin with what the first requests are likely to ask for. After that they compile the rest at a low priority,
and beside other work on the machine that can take very long; so if a request waits for a kernel then, another worker
compiles it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from requant.kernels.jit.cache_directory import CACHE_VARIABLE
from requant.kernels.jit.jit import Kernel, all_kernels, compile_elsewhere
from requant.kernels.jit.machine_code_cache import MachineCodeCache, kept_in

_log = logging.getLogger(__name__)

_WORKER = "requant.kernels.jit.compile_worker"
_ROOT = Path(__file__).parents[3]

# What a first request is likely to ask for. After that the self-test goes ahead, in the order of its known answers.
_WANTED_FIRST = (
    "requant.kernels.scalar.reciprocal",
    "requant.kernels.convert.quantize.native",
    "requant.kernels.convert",
)
# The first of these, for README's calls and the first page, are compiled at normal priority.
_URGENT_FROM_THE_START = 5

# Kernels that take about four times as long to compile as the others.
_LARGE = (
    "requant.kernels.checkpoint.codes",
    "requant.kernels.checkpoint.squared_errors",
    "requant.kernels.contract.convolution",
    "requant.kernels.convert.dequantize.native",
    "requant.kernels.convert.floats.encoding",
    "requant.kernels.convert.quantize",
    "requant.kernels.convert.requantize.real_factor",
    "requant.kernels.statistics.compare",
    "requant.kernels.statistics.error_sums",
    "requant.kernels.statistics.torch_histogram",
)
_LARGE_COST = 4

# As much of the work must be done before what is left is estimated from it.
_ENOUGH_TO_ESTIMATE = 0.1

_KERNELS_PER_LINE = 20

# A worker takes 0.2 GB, so more of them than this would need more memory than a small container has.
_MAX_WORKERS = 8


class Progress(NamedTuple):
    """Kernels that are ready, their total, and the expected seconds for the rest: None until a tenth is done."""

    compiled: int
    total: int
    seconds_left: int | None


class Compilation:
    """The compilation of kernels that are not in the cache, in the background."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._kernels = kernels
        self._changed = threading.Condition()
        for each in self._kernels:
            if each.is_cached():
                each.compile()
        self.used_cache = MachineCodeCache.loaded > 0
        """Whether any machine code was cached before this start; later, workers put theirs into the cache."""
        self._queue = deque(sorted((each for each in self._kernels if not each.ready), key=_rank))
        self._cost = sum(map(_cost, self._queue))
        self._urgent = set(list(self._queue)[:_URGENT_FROM_THE_START])
        self._began = monotonic()
        self._workers: list[threading.Thread] = []
        # The threads of workers whose priority is that of this process.
        self._at_normal_priority: set[threading.Thread] = set()
        self._environment: dict[str, str] = {}
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._process = os.getpid()

    @property
    def complete(self) -> bool:
        """Whether every kernel is ready."""
        return all(each.ready for each in self._kernels)

    def progress(self) -> Progress:
        """Return the progress."""
        total, missing = len(self._kernels), [each for each in self._kernels if not each.ready]
        if not missing:
            return Progress(total, total, 0)
        cost = sum(map(_cost, missing))
        done = self._cost - cost
        enough = done >= self._cost * _ENOUGH_TO_ESTIMATE
        left = round((monotonic() - self._began) / done * cost) if enough else None
        return Progress(total - len(missing), total, left)

    def start(self, workers: int) -> None:
        """Start worker processes for what is missing, and return at once."""
        if not self._queue or self._workers:
            return
        try:
            self._environment = os.environ | {CACHE_VARIABLE: str(self._shared_directory())}
        except OSError as error:
            _log.warning("Kernels are compiled by the requests that want them: %s.", error)
            return
        compile_elsewhere(self._wait_for)
        with self._changed:
            for _ in range(min(workers, len(self._queue), _MAX_WORKERS)):
                self._start_worker()

    def load(self) -> Iterator[None]:
        """Load what other processes have put into the cache meanwhile. Yield after each kernel."""
        for each in self._kernels:
            if not each.ready and each.is_cached():
                each.compile()
                yield

    def share(self) -> None:
        """Make sure that there is a place where processes that are forked from this one can leave kernels for it.

        Where none is missing no place is looked for: in an image there is none, and that would be a warning.
        """
        if self._queue:
            with suppress(OSError):
                self._shared_directory()

    def finish(self, report: Callable[[int, int], None] | None = None) -> int:
        """Wait until every kernel is ready. Return how many there are.

        `report` is called with the number of ready kernels and the total, whenever the former has grown.
        """
        reported = -1
        if report is not None and not self.complete:
            # Before the first is ready there is something to wait for, too.
            reported = self.progress().compiled
            report(reported, len(self._kernels))
        while any(each.is_alive() for each in self._workers) and not self.complete:
            with self._changed:
                self._changed.wait(1)
            if report is not None and self.progress().compiled > reported:
                reported = self.progress().compiled
                report(reported, len(self._kernels))
        # Compiles here what failed workers left.
        for each in self._kernels:
            each.compile()
        compile_elsewhere(None)
        if self._directory is not None and self._process == os.getpid():
            MachineCodeCache.handed_over = None
            self._directory.cleanup()
        if report is not None and reported < len(self._kernels):
            report(len(self._kernels), len(self._kernels))
        return len(self._kernels)

    def _shared_directory(self) -> Path:
        """Return where workers write and this process reads: the cache, or a temporary directory if there is none."""
        if (kept := kept_in()) is not None:
            return kept
        if MachineCodeCache.handed_over is not None:
            return MachineCodeCache.handed_over
        self._directory = tempfile.TemporaryDirectory(prefix="requant-kernels-")
        MachineCodeCache.handed_over = Path(self._directory.name)
        return MachineCodeCache.handed_over

    def _start_worker(self, *, urgent_only: bool = False) -> None:
        """Start a worker process, and the thread that sends it kernels. `_changed` is held."""
        thread = threading.Thread(target=self._work, args=(urgent_only,), name="compile worker", daemon=True)
        self._workers.append(thread)
        self._at_normal_priority.add(thread)
        thread.start()

    def _next(self, urgent_only: bool) -> Kernel | None:
        """Return what this thread's worker compiles next, or None if it is to end."""
        with self._changed:
            while self._queue and (not urgent_only or self._queue[0] in self._urgent):
                kernel = self._queue.popleft()
                if not kernel.ready:
                    if kernel not in self._urgent:
                        self._at_normal_priority.discard(threading.current_thread())
                    return kernel
            self._at_normal_priority.discard(threading.current_thread())
            return None

    def _work(self, urgent_only: bool) -> None:
        """Run one worker process: send it a kernel at a time, and load the result."""
        command, kernel = [sys.executable, "-m", _WORKER, str(os.getpid())], None
        try:
            with subprocess.Popen(
                command,
                cwd=_ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                # Ctrl-C reaches all of a terminal's process group, and would end imports with a traceback.
                process_group=0,
            ) as worker:
                assert worker.stdin is not None
                assert worker.stdout is not None
                lowered = False
                while (kernel := self._next(urgent_only)) is not None:
                    if not lowered and threading.current_thread() not in self._at_normal_priority:
                        lowered = True
                        worker.stdin.write("\n")
                    worker.stdin.write(f"{kernel.description}\n")
                    worker.stdin.flush()
                    if not worker.stdout.readline():
                        raise OSError(f"it ended with {worker.wait()}")
                    self._load(kernel)
        except OSError as error:
            _log.warning("A process that compiles kernels failed: %s.", error)
            self._at_normal_priority.discard(threading.current_thread())
            if kernel is not None:
                self._load(kernel)

    def _load(self, kernel: Kernel) -> None:
        kernel.compile()
        with self._changed:
            self._changed.notify_all()

    def _wait_for(self, kernel: Kernel, urgent: bool) -> None:
        """Move `kernel` to the front of the queue, and return when it is ready."""
        with self._changed:
            if kernel in self._queue:
                self._queue.remove(kernel)
                self._queue.appendleft(kernel)
            if urgent and kernel not in self._urgent:
                self._urgent.add(kernel)
                if not self._at_normal_priority:
                    if kernel not in self._queue:
                        # A worker of low priority has it. Whichever is first is good.
                        self._queue.appendleft(kernel)
                    self._start_worker(urgent_only=True)
            while not kernel.ready and any(each.is_alive() for each in self._workers):
                self._changed.wait(1)
        kernel.compile()


def _rank(kernel: Kernel) -> int:
    starts = enumerate(_WANTED_FIRST)
    return next((rank for rank, start in starts if kernel.name.startswith(start)), len(_WANTED_FIRST))


def _cost(kernel: Kernel) -> int:
    """How long a kernel takes to compile, relative to others."""
    return _LARGE_COST if kernel.name.startswith(_LARGE) else 1


def reporting(label: str) -> Callable[[int, int], None]:
    """Return a `report` that writes progress to stderr, on lines that begin with `label`."""
    began, line = monotonic(), 0

    def report(compiled: int, total: int) -> None:
        nonlocal line
        if compiled == total or compiled // _KERNELS_PER_LINE > line:
            line = compiled // _KERNELS_PER_LINE
            sys.stderr.write(f"{label}: {compiled} of {total} kernels, {monotonic() - began:.0f} s\n")

    return report


_lock = threading.Lock()
_started: Compilation | None = None


def start_compilation(workers: int, kernels: Sequence[Kernel] | None = None) -> Compilation:
    """Load the kernels that are in the cache, and start to compile the others in at most `workers` processes.

    `kernels`: None for all that were imported. There is one compilation at a time: until it is complete, later calls
    return the same one.
    """
    compilation = load_kernels(kernels)
    with _lock:
        compilation.start(workers)
    return compilation


def load_kernels(kernels: Sequence[Kernel] | None = None) -> Compilation:
    """Load the kernels that are in the cache. `start_compilation` compiles the others, here or in a forked process."""
    global _started
    with _lock:
        if _started is None or _started.complete:
            _started = Compilation(all_kernels() if kernels is None else kernels)
        return _started


def compile_kernels(report: Callable[[int, int], None] | None = None) -> int:
    """Compile, or load from the cache, all kernels that were imported. Return the number of specialisations.

    `report` is called with the number of ready kernels and the total, as compilation proceeds.
    """
    return start_compilation(os.cpu_count() or 1).finish(report)
