"""Comparisons of two rules that take longer than a request may, each in a thread of its own.

Nothing of them is stored: they end with their process, and the last ones that have ended are remembered. The same
request is the same job. Worker processes report theirs to each other, so any of them answers for all.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from requant.checkpoint.jobs import JobError, JobState
from requant.errors import OverloadedError, RequantError, UnavailableError
from requant.errors.cancellation import cancellation_check
from requant.errors.progress import progress_report
from requant_service.runtime.reports import Reports
from requant_service.runtime.shared_numbers import Shared, SharedNumbers

# How long a cancellation waits for the one before it.
_CANCEL_SECONDS = 1.0
_REMEMBERED, _REMEMBERED_BYTES = 16, 8 << 20
"""So many jobs that have ended are kept, with what they found: the last of them in any case, others up to these bytes,
which are half of what a worker may report."""


class _StoppedError(Exception):
    """The job is no longer wanted."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison as it is now: `inputs` of `total_inputs` are decided. `found`: the report once it is finished,
    pickled, because workers send it to each other every second.
    """

    job_id: str
    state: JobState
    inputs: int = 0
    total_inputs: int = 0
    found: bytes | None = None
    error: JobError | None = None

    @property
    def report(self) -> Mapping[str, Any] | None:
        """What was found, once it is finished."""
        return None if self.found is None else pickle.loads(self.found)  # by a process of this service


class _Job:
    """A comparison that runs in this process. `is_cancelled`: asked between its steps. `ended`: called at the end."""

    def __init__(
        self,
        job_id: str,
        work: Callable[[], Mapping[str, Any]],
        is_cancelled: Callable[[], bool],
        ended: Callable[[], None],
    ) -> None:
        self.now = Comparison(job_id, JobState.RUNNING)
        self._work = work
        self._is_cancelled = is_cancelled
        self._ended = ended
        self._interrupted = threading.Event()
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), name="comparison", daemon=True)

    def start(self) -> None:
        """Begin. Raise RuntimeError if there are no more threads."""
        self._thread.start()

    def interrupt(self) -> None:
        """End it soon."""
        self._interrupted.set()

    def wait(self, seconds: float) -> None:
        """Wait for its thread."""
        self._thread.join(seconds)

    def _check(self) -> None:
        if self._interrupted.is_set() or self._is_cancelled():
            raise _StoppedError

    def _advanced(self, done: int, total: int) -> None:
        self.now = replace(self.now, inputs=done, total_inputs=total)

    def _run(self) -> None:
        cancellation_check.set(self._check)
        progress_report.set(self._advanced)
        state, found, error = JobState.FAILED, None, None
        try:
            found, state = pickle.dumps(self._work()), JobState.FINISHED
        except _StoppedError:
            state = JobState.INTERRUPTED if self._interrupted.is_set() else JobState.CANCELLED
        except RequantError as failure:
            error = JobError(failure.code, failure.detail)
        except Exception:
            error = JobError("internal", "the comparison failed; the log has more")
            raise
        finally:
            # Whoever sees that it has ended finds its place free.
            self._ended()
            self.now = replace(self.now, state=state, found=found, error=error)


class ComparisonJobs:
    """`max_jobs`: how many run at a time, in all workers. `threads`: of each."""

    def __init__(self, max_jobs: int, threads: int, numbers: SharedNumbers, reports: Reports) -> None:
        self.threads = threads
        self._max_jobs = max_jobs
        self._numbers = numbers
        self._reports = reports
        self._jobs: OrderedDict[str, _Job] = OrderedDict()
        self._closed = False
        self._lock = threading.Lock()

    @property
    def running(self) -> int:
        """The number of jobs that run in this process."""
        return sum(each.now.state is JobState.RUNNING for each in list(self._jobs.values()))

    def comparisons(self) -> list[Comparison]:
        """Return the jobs of this process that are remembered."""
        with self._lock:
            self._forget()
            return [each.now for each in self._jobs.values()]

    async def find(self, job_id: str) -> Comparison | None:
        """Return a job that is remembered by this worker or another."""
        here = self._jobs.get(job_id)
        if here is not None:
            return here.now
        reported = [each for report in await self._reports.of_others() for each in report.comparisons]
        return next((each for each in reported if each.job_id == job_id), None)

    async def cancel(self, job_id: str) -> Comparison | None:
        """End a job soon, in whichever worker it runs. Return what it is now; None: there is none."""
        found = await self.find(job_id)
        if found is not None and found.state is JobState.RUNNING:
            await self._cancelled_before(_number(job_id))
            self._numbers.put(Shared.CANCELLED_JOB, _number(job_id))
        return found

    async def _cancelled_before(self, number: int) -> None:
        """Wait until the job that was cancelled last has ended, though not for one whose worker has."""
        end = perf_counter() + _CANCEL_SECONDS
        while self._numbers.own(Shared.CANCELLED_JOB) not in (0, number) and perf_counter() < end:
            await asyncio.sleep(_CANCEL_SECONDS / 100)

    async def start(self, job_id: str, work: Callable[[], Mapping[str, Any]]) -> Comparison:
        """Start a job, unless it runs or is finished. Raise OverloadedError where as many run as may."""
        before = await self.find(job_id)
        if before is not None and before.state in (JobState.RUNNING, JobState.FINISHED):
            return before
        with self._lock:
            if self._closed:
                raise UnavailableError("the service is shutting down")
            with self._numbers.lock():
                if self._numbers.total(Shared.EQUIVALENCE_JOBS) >= self._max_jobs:
                    raise OverloadedError(
                        f"{self._max_jobs} comparisons run here already (setting equivalence_jobs); send the request "
                        "again when one has ended"
                    )
                self._numbers.forget(Shared.CANCELLED_JOB, _number(job_id))
                self._numbers.add(Shared.EQUIVALENCE_JOBS, 1)
            number = _number(job_id)
            job = _Job(
                job_id,
                work,
                lambda: number in self._numbers.all_of(Shared.CANCELLED_JOB),
                lambda: self._ended(number),
            )
            try:
                job.start()
            except RuntimeError:
                self._numbers.add(Shared.EQUIVALENCE_JOBS, -1)
                raise
            self._jobs[job_id] = job
            self._jobs.move_to_end(job_id)
            self._forget()
        return job.now

    def _forget(self) -> None:
        """Forget the jobs that ended longest ago, beyond what is remembered."""
        ended = [job_id for job_id, each in self._jobs.items() if each.now.state is not JobState.RUNNING]
        size = 0
        for place, job_id in enumerate(reversed(ended)):
            size += len(self._jobs[job_id].now.found or b"")
            if place and (place >= _REMEMBERED or size > _REMEMBERED_BYTES):
                del self._jobs[job_id]

    def _ended(self, number: int) -> None:
        with self._lock:
            self._numbers.add(Shared.EQUIVALENCE_JOBS, -1)
            self._numbers.forget(Shared.CANCELLED_JOB, number)

    def close(self, seconds: float) -> None:
        """Stop all jobs."""
        with self._lock:
            self._closed = True
            jobs = list(self._jobs.values())
        for job in jobs:
            job.interrupt()
        for job in jobs:
            job.wait(seconds)


def _number(job_id: str) -> int:
    """Return a number for a job, which is named by a digest. It is not 0."""
    return int(job_id[:15], 16) | 1
