"""The record of a job at its destination, for processes that do not run it: state, progress and time of the record."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from requant.checkpoint.run.destination import CONFIG, RECORDS, read_manifest
from requant.checkpoint.run.work import Progress
from requant.checkpoint.small_json import parse_small_json
from requant.checkpoint.storage.store import Store

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
    found = _parsed(destination.get(RECORD, _MAX_BYTES))
    manifest = read_manifest(destination)
    if manifest is None:
        return None
    request = dict(manifest.request)
    if CONFIG in manifest.files and destination.find(CONFIG) is not None:
        size = sum(file.size for file in manifest.files.values())
        count = len(manifest.files)
        progress = Progress(bytes_written=size, bytes_to_write=size, outputs_finished=count, outputs=count)
        return JobRecord(manifest.plan, request, JobState.FINISHED, progress=progress)
    if found is None or found.plan != manifest.plan:
        return JobRecord(manifest.plan, request, JobState.INTERRUPTED)
    silent = time.time() - (found.updated or 0.0) > SECONDS_UNTIL_INTERRUPTED
    if found.state is JobState.RUNNING and silent:
        return JobRecord(
            found.plan, request, JobState.INTERRUPTED, found.source, found.started, found.updated, found.progress
        )
    return found


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
