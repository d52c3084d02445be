"""One conversion in the background."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import asdict, replace
from threading import Event, Lock, Thread
from typing import Any

from requant.checkpoint.jobs.job_record import (
    RECORD,
    SECONDS_BETWEEN,
    JobError,
    JobRecord,
    JobState,
    forget_cancellation,
    is_asked_to_cancel,
    write_record,
)
from requant.checkpoint.plan.model import Plan
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.run.work import Progress
from requant.checkpoint.storage.store import Store
from requant.errors import CheckpointError, RequantError
from requant.errors.cancellation import cancellation_check

_log = logging.getLogger(__name__)


class _CancelledError(Exception):
    """The job was cancelled or interrupted."""


class ConversionJob:
    """Runs a plan in a thread of its own, and writes a record of it at the destination every few seconds."""

    def __init__(self, plan: Plan, source: Store, destination: Store, *, threads: int | None) -> None:
        self._plan, self._source, self._destination, self._threads = plan, source, destination, threads
        now = time.time()
        self.record = JobRecord(
            plan.digest, asdict(plan.request), JobState.RUNNING, source.url, now, now, warnings=plan.warnings
        )
        self._lock = Lock()
        self._stopped = Event()
        self._state_when_stopped = JobState.CANCELLED
        self._ended = Event()
        self._thread = Thread(target=copy_context().run, args=(self._run,), name="checkpoint-job", daemon=True)
        self._done: list[Callable[[ConversionJob], None]] = []

    def start(self, done: Callable[[ConversionJob], None]) -> None:
        """Begin. `done` is called at the end, in the thread of the job."""
        self._done.append(done)
        self._thread.start()

    def stop(self, state: JobState = JobState.CANCELLED) -> None:
        """End the job once the pieces in progress are done, in this state: cancelled or interrupted."""
        self._state_when_stopped = state
        self._stopped.set()

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        reporting = Thread(target=self._report, name="checkpoint-job-record", daemon=True)
        state, error = self._outcome(reporting)
        self._ended.set()
        if reporting.ident is not None:
            reporting.join()
        try:
            with suppress(RequantError):
                if state is JobState.FINISHED:
                    # As a conversion does with its records: what was written since is removed.
                    self._destination.remove(RECORD)
                    forget_cancellation(self._destination)
                else:
                    write_record(self._destination, self._changed(state=state, error=error))
        except Exception:
            _log.exception("The record of a checkpoint job could not be written.")
        # After the record: who asks another replica hears nothing older than who asks this one.
        self._change(state=state, error=error)
        for done in self._done:
            done(self)

    def _outcome(self, reporting: Thread) -> tuple[JobState, JobError | None]:
        """Convert, and return the outcome."""
        # Not that of the request that started the job.
        cancellation_check.set(self._check)
        try:
            forget_cancellation(self._destination)
            self._write()
            reporting.start()
            run_plan(self._plan, self._source, self._destination, threads=self._threads, progress=self._progress)
        except _CancelledError:
            return self._state_when_stopped, None
        except RequantError as error:
            place = (error.file, error.tensor) if isinstance(error, CheckpointError) else (None, None)
            return JobState.FAILED, JobError(error.code, error.detail, *place)
        except Exception:
            _log.exception("A checkpoint job failed.")
            return JobState.FAILED, JobError("internal_error", "unexpected error; the log has the details")
        return JobState.FINISHED, None

    def _check(self) -> None:
        if self._stopped.is_set():
            raise _CancelledError

    def _progress(self, progress: Progress) -> None:
        self._change(progress=progress)

    def _changed(self, **members: Any) -> JobRecord:
        return replace(self.record, updated=time.time(), **members)

    def _change(self, **members: Any) -> JobRecord:
        with self._lock:
            self.record = self._changed(**members)
            return self.record

    def _report(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN):
            # The next one may succeed; if none does, the job counts as interrupted, and goes on.
            with suppress(RequantError):
                if is_asked_to_cancel(self._destination):
                    self.stop()
                self._write()

    def _write(self) -> None:
        write_record(self._destination, self._change())
