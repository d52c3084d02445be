"""Comparisons of two rules that take longer than a request may, each in a thread of its own of this process.

Nothing of them is stored: they end with the process, and the last ones that have ended are remembered. The same request
is the same job.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any

from requant.checkpoint.jobs import JobError, JobState
from requant.errors import OverloadedError, RequantError, UnavailableError
from requant.errors.cancellation import cancellation_check
from requant.errors.progress import progress_report

_REMEMBERED = 16
"""So many jobs that have ended are kept, with what they found."""


class _StoppedError(Exception):
    """The job is no longer wanted."""


class ComparisonJob:
    """One comparison: `inputs` of `total_inputs` are decided. `report`: what was found, once it is finished."""

    def __init__(self, job_id: str, work: Callable[[], Mapping[str, Any]]) -> None:
        self.job_id = job_id
        self.state = JobState.RUNNING
        self.inputs = 0
        self.total_inputs = 0
        self.report: Mapping[str, Any] | None = None
        self.error: JobError | None = None
        self._work = work
        self._stopped = threading.Event()
        self._ending = JobState.CANCELLED
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), name="comparison", daemon=True)

    def start(self) -> None:
        """Begin. Raise RuntimeError if there are no more threads."""
        self._thread.start()

    def stop(self, state: JobState) -> None:
        """End it soon, in that state, unless it has ended."""
        self._ending = state
        self._stopped.set()

    def wait(self, seconds: float) -> None:
        """Wait for its thread."""
        self._thread.join(seconds)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise _StoppedError

    def _progress(self, done: int, total: int) -> None:
        self.inputs, self.total_inputs = done, total

    def _run(self) -> None:
        cancellation_check.set(self._check)
        progress_report.set(self._progress)
        try:
            self.report = self._work()
            self.state = JobState.FINISHED
        except _StoppedError:
            self.state = self._ending
        except RequantError as error:
            self.error, self.state = JobError(error.code, error.detail), JobState.FAILED
        except Exception:
            self.error = JobError("internal", "the comparison failed; the log has more")
            self.state = JobState.FAILED
            raise


class ComparisonJobs:
    """`max_jobs`: how many run at a time. `threads`: of each."""

    def __init__(self, max_jobs: int, threads: int) -> None:
        self.threads = threads
        self._max_jobs = max_jobs
        self._jobs: OrderedDict[str, ComparisonJob] = OrderedDict()
        self._closed = False
        self._lock = threading.Lock()

    @property
    def running(self) -> int:
        """The number of jobs that run."""
        return sum(each.state is JobState.RUNNING for each in list(self._jobs.values()))

    def job(self, job_id: str) -> ComparisonJob | None:
        """Return a job that is remembered."""
        return self._jobs.get(job_id)

    def start(self, job_id: str, work: Callable[[], Mapping[str, Any]]) -> ComparisonJob:
        """Start a job, unless it runs or is finished. Raise OverloadedError where as many run as may."""
        with self._lock:
            before = self._jobs.get(job_id)
            if before is not None and before.state in (JobState.RUNNING, JobState.FINISHED):
                return before
            if self._closed:
                raise UnavailableError("the service is shutting down")
            if self.running >= self._max_jobs:
                raise OverloadedError(
                    f"{self._max_jobs} comparisons run here already (setting equivalence_jobs); send the request again "
                    "when one has ended"
                )
            job = ComparisonJob(job_id, work)
            job.start()
            self._jobs[job_id] = job
            self._jobs.move_to_end(job_id)
            ended = [name for name, each in self._jobs.items() if each.state is not JobState.RUNNING]
            for name in ended[:-_REMEMBERED]:
                del self._jobs[name]
        return job

    def close(self, seconds: float) -> None:
        """Stop all jobs."""
        with self._lock:
            self._closed = True
            jobs = list(self._jobs.values())
        for job in jobs:
            job.stop(JobState.INTERRUPTED)
        for job in jobs:
            job.wait(seconds)
