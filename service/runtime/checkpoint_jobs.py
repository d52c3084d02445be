"""The checkpoint jobs that this process runs, and the threads in which they and their storage wait."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TypeVar

from core.checkpoint.jobs.job import ConversionJob
from core.checkpoint.jobs.job_record import JobState
from core.checkpoint.jobs.roots import Roots
from core.errors import OverloadedError

Result = TypeVar("Result")

_log = logging.getLogger("uvicorn.error")

_STORAGE_THREADS = 4


class CheckpointJobs:
    """`most`: how many jobs run at a time, `threads`: of each. Raises ParameterError for a root that cannot be one."""

    def __init__(self, roots: list[str], most: int, threads: int) -> None:
        self.roots = Roots(roots)
        self.threads = threads
        self._most = most
        self._running: dict[str, ConversionJob] = {}
        self._preparing: Counter[str] = Counter()
        self._lock = Lock()
        # Names, headers and records are read here: storage may be slow, and the executor's threads are for tensors.
        self._storage = ThreadPoolExecutor(_STORAGE_THREADS, thread_name_prefix="checkpoint-storage")

    @property
    def running(self) -> int:
        """The number of jobs that run."""
        return len(self._running)

    async def with_storage(self, work: Callable[[], Result]) -> Result:
        """Return the result of work that waits for storage."""
        return await asyncio.get_running_loop().run_in_executor(self._storage, work)

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

    def start(self, destination: str, job: ConversionJob, log: str) -> ConversionJob:
        """Start a job, which has a place, unless one runs for the destination. Returns that which runs."""

        def done(ended: ConversionJob) -> None:
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
        self._storage.shutdown(wait=False, cancel_futures=True)
