"""A worker: writes its share of a plan's outputs, or those that no other worker writes, and completes the
destination."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from requant.checkpoint.plan.model import Plan
from requant.checkpoint.run.destination import check_apart, prepare
from requant.checkpoint.run.run import RunReport, finish, run_task
from requant.checkpoint.run.work import ProgressCallback
from requant.checkpoint.storage.store import Store
from requant.checkpoint.workers.lease import SECONDS, take_lease
from requant.errors import DestinationError, ParameterError
from requant.errors.cancellation import check_cancelled

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
    lease_seconds: float = SECONDS,
) -> WorkReport:
    """Make the outputs of `share`, or without one, whatever is missing and no other worker has the lease of.

    With a share it returns when that is done; without, when all outputs are there. Whoever finds all outputs there
    writes the rest, config.json last. Outputs that exist are not made again, so that a worker may be started again, and
    two may do the same: they write the same bytes.

    `task_done` is called after each output with its name. Raises as `run_plan`, except that it waits while another run
    holds the destination.
    """
    check_apart(source, destination)
    made: list[str] = []

    def make(index: int) -> None:
        output = plan.tasks[index].output
        report = _patiently(lambda: run_task(plan, index, source, destination, threads=threads, progress=progress))
        if output not in report.kept:
            made.append(output)
        if task_done is not None:
            task_done(output, report)

    if share is not None:
        for index in range(share.index, len(plan.tasks), share.of):
            make(index)
    else:
        _make_what_is_free(plan, destination, make, lease_seconds)
    missing = _missing(plan, destination)
    if not missing:
        _patiently(lambda: finish(plan, source, destination, progress=progress))
    return WorkReport(tuple(made), tuple(plan.tasks[index].output for index in missing), not missing)


def _make_what_is_free(plan: Plan, destination: Store, make: Callable[[int], None], lease_seconds: float) -> None:
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

    return _patiently(look)


def _patiently(call: Callable[[], Answer]) -> Answer:
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
