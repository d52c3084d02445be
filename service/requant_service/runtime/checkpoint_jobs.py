"""The checkpoint jobs that this process runs, and what they hold of its threads and its memory."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from requant.checkpoint.jobs.job import ConversionJob
from requant.checkpoint.jobs.job_record import JobState
from requant.checkpoint.jobs.roots import Roots
from requant.errors import LimitError, OverloadedError
from requant_service.runtime.memory_budget import MemoryBudget, Reservation
from requant_service.runtime.storage_threads import StorageOfRoots

_log = logging.getLogger("uvicorn.error")

_RESERVED_AT_ONCE = 1 << 20


class PlanMemory:
    """What a plan holds of the memory budget: asked for in threads, given back on the event loop.

    All plans together hold at most half of the budget, and none waits for memory: requests with tensors, which need
    little and end soon, find the other half.
    """

    def __init__(self, jobs: CheckpointJobs, budget: MemoryBudget) -> None:
        self._jobs, self._share = jobs, budget.budget // 2
        self._reservation = Reservation(budget)
        self._loop = asyncio.get_running_loop()
        self._used = 0

    def reserve(self, byte_count: int) -> None:
        """Hold more. Not called on the event loop. Raises LimitError, OverloadedError."""
        self._used += byte_count
        missing = self._used - self._reservation.held
        if missing > 0:
            asyncio.run_coroutine_threadsafe(self._grow(max(missing, _RESERVED_AT_ONCE)), self._loop).result()

    async def _grow(self, byte_count: int) -> None:
        if self._used > self._share:
            raise LimitError(
                f"the plan needs more than {self._share} bytes of memory, half of the memory budget: convert a "
                "checkpoint with so many tensors with the command `requant checkpoint`",
                limit=self._share,
            )
        if self._jobs.bytes_of_plans + byte_count > self._share or not self._reservation.try_grow(byte_count):
            raise OverloadedError("the memory for plans is in use by those of other checkpoints")
        self._jobs.bytes_of_plans += byte_count

    def give_back(self) -> None:
        """Hold nothing any more. Called in any thread."""
        # The loop is closed at the end of the process.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._shrink)

    def _shrink(self) -> None:
        self._jobs.bytes_of_plans -= self._reservation.held
        self._reservation.shrink(self._reservation.held)


class CheckpointJobs:
    """`most`: how many jobs run at a time, `threads`: of each, `closing`: set when the service ends.

    Raises ParameterError for a root that cannot be one.
    """

    def __init__(self, roots: list[str], most: int, threads: int, closing: asyncio.Event) -> None:
        self.roots = Roots(roots)
        self.threads = threads
        self.bytes_of_plans = 0
        self._most = most
        self._running: dict[str, ConversionJob] = {}
        self._preparing: Counter[str] = Counter()
        self._lock = Lock()
        # Names, headers and records are read here: storage may be slow, and the executor's threads are for tensors.
        self.storage = StorageOfRoots(roots, closing)

    @property
    def running(self) -> int:
        """The number of jobs that run."""
        return len(self._running)

    def job(self, destination: str) -> ConversionJob | None:
        """Return the job that runs here for a destination."""
        return self._running.get(destination)

    @contextmanager
    def place_for(self, destination: str) -> Iterator[None]:
        """Hold the place of a destination's job while it is prepared and started. Raises OverloadedError."""
        with self._lock:
            if len({*self._running, *self._preparing, destination}) > self._most:
                raise OverloadedError(
                    f"{self._most} checkpoint jobs run here already (setting checkpoint_jobs); send the request again "
                    "when one has ended"
                )
            self._preparing[destination] += 1
        try:
            yield
        finally:
            with self._lock:
                self._preparing -= Counter([destination])

    def start(
        self, destination: str, job: ConversionJob, log: str, release: Callable[[], None] = lambda: None
    ) -> ConversionJob:
        """Start a job, which has a place, unless one runs for the destination. Returns that which runs.

        `release` is called when the started job has ended.
        """

        def done(ended: ConversionJob) -> None:
            release()
            with self._lock:
                self._running.pop(destination, None)
            error = ended.record.error
            _log.info("Checkpoint job %s: %s.", log, ended.record.state if error is None else error.detail)

        with self._lock:
            if (before := self._running.get(destination)) is not None:
                return before
            self._running[destination] = job
        _log.info("Checkpoint job %s: started.", log)
        try:
            job.start(done)
        except RuntimeError:
            # No more threads: the place is another job's.
            with self._lock:
                self._running.pop(destination, None)
            raise
        return job

    def close(self, seconds: float) -> None:
        """Stop all jobs. What they have written stays, and the same requests continue them."""
        with self._lock:
            jobs = list(self._running.values())
        for job in jobs:
            job.stop(JobState.INTERRUPTED)
        for job in jobs:
            job.wait(seconds)
        self.storage.shut_down()
