"""One plan, run by several processes: each plans again, makes its share of the outputs, or those that no other worker
makes, and the last one finishes.

A lease is a file next to the records of the destination that only one worker can create. It saves work and protects
nothing. A worker that lost its lease without noticing writes the bytes that the next one writes.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from threading import Event, Thread
from types import TracebackType
from typing import Self, TypeVar
from uuid import uuid4

from requant.checkpoint.plan.model import Plan, Request, request_of, text
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.destination import check_apart, prepare, record_name
from requant.checkpoint.run.run import RunReport, finish, run_task
from requant.checkpoint.run.work import ProgressCallback
from requant.checkpoint.small_json import parse_small_json
from requant.checkpoint.storage.location import open_folder
from requant.checkpoint.storage.store import Store
from requant.errors import (
    CheckpointError,
    DestinationError,
    ParameterError,
    SourceChangedError,
    StorageError,
    UnknownNameError,
    excerpt,
)
from requant.errors.cancellation import check_cancelled

VERSION = 1


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan by what it follows from. `tasks`: their number, for who chooses the number of workers."""

    source: str
    destination: str
    request: Request
    digest: str
    tasks: int

    def to_json(self) -> bytes:
        """Return the file's content."""
        members = {each.name: getattr(self, each.name) for each in fields(self)}
        members["request"] = self.request.members
        return (json.dumps({"version": VERSION, **members}, indent=2) + "\n").encode()

    def plan(self, source: Store) -> Plan:
        """Return the plan, made again from the headers of the source.

        Raises SourceChangedError where another plan follows from it now; otherwise as `plan_conversion`.
        """
        try:
            plan = plan_conversion(source, self.request)
        except (UnknownNameError, ParameterError) as error:
            # Nothing of it was given by the caller.
            raise CheckpointError(f"the request in the plan file cannot be planned: {error.detail}") from None
        if plan.digest != self.digest:
            raise SourceChangedError(
                f"the plan for {self.source} is no longer that of the plan file: the source has changed, or this is "
                "another version of Requant. Make a new plan file, and start with an empty destination"
            )
        return plan


def write_plan_file(location: str, file: PlanFile) -> None:
    """Write a plan file to a path or the URL of an object. Raises StorageError."""
    folder, name = open_folder(location)
    folder.put(name, file.to_json())


def read_plan_file(location: str) -> PlanFile:
    """Return the plan file at a path or the URL of an object. Raises CheckpointError, StorageError."""
    folder, name = open_folder(location)
    data = folder.get(name)
    if data is None:
        raise StorageError(f"{location} does not exist: `requant checkpoint plan --output` writes plan files")
    return parse_plan_file(data)


def plan_file_of(plan: Plan, source: Store, destination: Store) -> PlanFile:
    """Return the file of a plan."""
    return PlanFile(source.url, destination.url, plan.request, plan.digest, len(plan.tasks))


def parse_plan_file(data: bytes) -> PlanFile:
    """Return what `PlanFile.to_json` wrote. Raises CheckpointError."""
    try:
        parsed = json.loads(data)
        if parsed["version"] != VERSION:
            raise CheckpointError(
                f"the plan file is of version {excerpt(str(parsed['version']))}; expected {VERSION}: make a new one"
            )
        return PlanFile(
            text(parsed["source"]),
            text(parsed["destination"]),
            request_of(parsed["request"]),
            text(parsed["digest"]),
            int(parsed["tasks"]),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError("not a plan file as written by `requant checkpoint plan --output`") from error


_MAX_BYTES = 4096

LEASE_SECONDS = 300.0
"""How long a lease is valid after it was taken or renewed. Clocks of workers may differ by less."""


class Lease:
    """The lease of an output. A context manager: renewed while it lasts, given back at its end."""

    def __init__(self, destination: Store, output: str, holder: str, seconds: float) -> None:
        self._destination = destination
        self._name = _name(output)
        self._holder = holder
        self._seconds = seconds
        self._ended = Event()
        self._renewal = Thread(target=self._renew, name="lease", daemon=True)

    def _renew(self) -> None:
        while not self._ended.wait(self._seconds / 3):
            # The next renewal may succeed. If none does, another worker makes the output too.
            with suppress(StorageError):
                self._destination.put(self._name, _text(self._holder, self._seconds))

    def __enter__(self) -> Self:
        self._renewal.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._renewal.join()
        with suppress(StorageError):
            self._destination.remove(self._name)


def take_lease(destination: Store, output: str, *, seconds: float = LEASE_SECONDS) -> Lease | None:
    """Return the lease of an output; None where another worker holds it. Raises StorageError."""
    name, holder = _name(output), uuid4().hex
    if not destination.put(name, _text(holder, seconds), only_if_absent=True):
        held = _held(destination.get(name, _MAX_BYTES))
        # It may be ours: a request whose answer was lost is sent again, and finds what it wrote.
        if held is not None and held[0] != holder and held[1] > time.time():
            return None
        destination.put(name, _text(holder, seconds))
    return Lease(destination, output, holder, seconds)


def _name(output: str) -> str:
    return record_name(output, ".lease")


def _text(holder: str, seconds: float) -> bytes:
    return json.dumps({"holder": holder, "until": time.time() + seconds}).encode()


def _held(data: bytes | None) -> tuple[str, float] | None:
    """Return the holder and until when it holds the lease; None for one that is gone or cannot be read."""
    try:
        parsed = parse_small_json(data or b"", _MAX_BYTES)
        return str(parsed["holder"]), float(parsed["until"])
    except (KeyError, TypeError, ValueError):
        return None


Answer = TypeVar("Answer")
WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Share:
    """The tasks `index`, `index + of`, `index + 2 of` and so on. Raises ParameterError for an index that is none."""

    index: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.of:
            raise ParameterError(f"there is no worker {self.index} of {self.of}: indexes are 0 to {self.of - 1}")


@dataclass(frozen=True, slots=True)
class WorkReport:
    """The result of a worker. `made`: the outputs that it wrote; `missing`: those left to other workers.

    `finished`: the checkpoint is complete, config.json included.
    """

    made: tuple[str, ...]
    missing: tuple[str, ...]
    finished: bool


TaskCallback = Callable[[str, RunReport], None]


def work(
    plan: Plan,
    source: Store,
    destination: Store,
    *,
    share: Share | None = None,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
    task_done: TaskCallback | None = None,
    lease_seconds: float = LEASE_SECONDS,
) -> WorkReport:
    """Make the outputs of `share`, or without one, whatever is missing and no other worker has the lease of.

    With a share it returns when that is done; without, when all outputs are there. The worker that sees all outputs
    complete writes the rest, config.json last. Outputs that exist are not made again, so that a worker may be started
    again, and two may do the same: they write the same bytes.

    `task_done` is called after each output with its name. Raises as `run_plan`, except that it waits while another run
    holds the destination.
    """
    check_apart(source, destination)
    made: list[str] = []

    def make(index: int) -> None:
        output = plan.tasks[index].output
        report = _retry_while_locked(
            lambda: run_task(plan, index, source, destination, threads=threads, progress=progress)
        )
        if output not in report.kept:
            made.append(output)
        if task_done is not None:
            task_done(output, report)

    if share is not None:
        for index in range(share.index, len(plan.tasks), share.of):
            make(index)
    else:
        _claim_and_convert(plan, destination, make, lease_seconds)
    missing = _missing(plan, destination)
    if not missing:
        _retry_while_locked(lambda: finish(plan, source, destination, progress=progress))
    return WorkReport(tuple(made), tuple(plan.tasks[index].output for index in missing), not missing)


def _claim_and_convert(plan: Plan, destination: Store, make: Callable[[int], None], lease_seconds: float) -> None:
    while missing := _missing(plan, destination):
        # Workers that start together begin in different places.
        first = random.randrange(len(missing))
        for index in missing[first:] + missing[:first]:
            lease = take_lease(destination, plan.tasks[index].output, seconds=lease_seconds)
            if lease is not None:
                with lease:
                    make(index)
                break
        else:
            _wait()


def _missing(plan: Plan, destination: Store) -> list[int]:
    """Return the tasks whose outputs do not exist."""

    def look() -> list[int]:
        with destination.lock(shared=True):
            kept = prepare(plan, destination, alone=False)
        return [index for index, task in enumerate(plan.tasks) if task.output not in kept]

    return _retry_while_locked(look)


def _retry_while_locked(call: Callable[[], Answer]) -> Answer:
    """Return the result of `call`, once no other run holds the lock of the destination."""
    while True:
        try:
            return call()
        except DestinationError as error:
            if not error.busy:
                raise
        _wait()


def _wait() -> None:
    check_cancelled()
    time.sleep(WAIT_SECONDS * random.uniform(0.5, 1.5))
