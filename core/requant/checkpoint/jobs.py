"""Jobs of a service: a plan that is run in a thread of its own, and its record at the destination, for processes that
do not run it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from threading import Event, Lock, Thread
from typing import Any

from requant.checkpoint.plan.model import Plan
from requant.checkpoint.run.destination import CONFIG, RECORDS, read_manifest
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.run.work import Progress
from requant.checkpoint.small_json import parse_small_json
from requant.checkpoint.storage.store import Store
from requant.errors import CheckpointError, RequantError
from requant.errors.cancellation import cancellation_check

RECORD = f"{RECORDS}.job.json"
CANCELLATION = f"{RECORDS}.cancel"

_MAX_BYTES = 16 << 20
"""As of the manifest: both hold the request."""

SECONDS_BETWEEN = 2.0
"""How often a running job writes its record."""
SECONDS_UNTIL_INTERRUPTED = 60.0
"""A job whose record is older than this is no longer running. Clocks may differ by less."""


class JobState(StrEnum):
    """The state of a job. Starting an unfinished job again resumes it."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed. `code`: of the error's class."""

    code: str
    detail: str
    file: str | None = None
    tensor: str | None = None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as it was at `updated`. Times are seconds since 1970, and sizes bytes.

    `plan`: the digest of its plan. Bytes that an earlier run wrote do not count in `progress`.
    """

    plan: str
    request: dict[str, Any]
    state: JobState
    source: str | None = None
    started: float | None = None
    updated: float | None = None
    progress: Progress = field(default_factory=Progress)
    error: JobError | None = None
    warnings: tuple[str, ...] = ()

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes of the source read per second since the job was started."""
        if self.started is None or self.updated is None or self.updated <= self.started:
            return None
        return self.progress.bytes_read / (self.updated - self.started)


def write_record(destination: Store, record: JobRecord) -> None:
    """Write the record. Raises StorageError."""
    destination.put(RECORD, json.dumps(asdict(record), ensure_ascii=False).encode())


def read_record(destination: Store) -> JobRecord | None:
    """Return the job that a destination belongs to; None if there is no conversion.

    Raises DestinationError for a manifest that cannot be read, StorageError.
    """
    # In this order: the end of a job removes the record after the manifest is complete.
    record = _parsed(destination.get(RECORD, _MAX_BYTES))
    manifest = read_manifest(destination)
    if manifest is None:
        return None
    request = dict(manifest.request)
    if CONFIG in manifest.files and destination.find(CONFIG) is not None:
        size = sum(file.size for file in manifest.files.values())
        count = len(manifest.files)
        progress = Progress(bytes_written=size, bytes_to_write=size, outputs_finished=count, outputs=count)
        return JobRecord(manifest.plan, request, JobState.FINISHED, progress=progress)
    if record is None or record.plan != manifest.plan:
        return JobRecord(manifest.plan, request, JobState.INTERRUPTED)
    silent = time.time() - (record.updated or 0.0) > SECONDS_UNTIL_INTERRUPTED
    if record.state is JobState.RUNNING and silent:
        return replace(record, request=request, state=JobState.INTERRUPTED, error=None, warnings=())
    return record


def _parsed(data: bytes | None) -> JobRecord | None:
    """Return what `write_record` wrote; None if it cannot be read."""
    try:
        members = parse_small_json(data or b"", _MAX_BYTES)
        error = members["error"]
        return JobRecord(
            str(members["plan"]),
            dict(members["request"]),
            JobState(members["state"]),
            members["source"],
            float(members["started"]),
            float(members["updated"]),
            Progress(**members["progress"]),
            None if error is None else JobError(**error),
            tuple(str(each) for each in members["warnings"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def ask_to_cancel(destination: Store) -> None:
    """Request that the process running the job at a destination stops it. Raises StorageError."""
    destination.put(CANCELLATION, b"{}")


def is_asked_to_cancel(destination: Store) -> bool:
    """Return whether cancellation was requested since the job began. Raises StorageError."""
    return destination.find(CANCELLATION) is not None


def forget_cancellation(destination: Store) -> None:
    """Remove the cancellation request for an earlier job. Raises StorageError."""
    destination.remove(CANCELLATION)


_log = logging.getLogger(__name__)


class _CancelledError(Exception):
    """The job was cancelled or interrupted."""


class ConversionJob:
    """Runs a plan in a thread of its own, and writes a record of it at the destination every few seconds."""

    def __init__(self, plan: Plan, source: Store, destination: Store, *, threads: int | None) -> None:
        self._plan, self._source, self._destination, self._threads = plan, source, destination, threads
        now = time.time()
        self.record = JobRecord(
            plan.digest, plan.request.members, JobState.RUNNING, source.url, now, now, warnings=plan.warnings
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
