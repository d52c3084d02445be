"""Numbers that the worker processes of one service share: what each of them uses, and what they use together.

They are in anonymous memory that the processes inherit from their supervisor. Each worker has a number of each kind,
which it changes itself, so that none is locked and a worker that is killed leaves nothing half changed: the supervisor
clears its numbers. Where a sum has to be compared with a limit before a worker adds to it, it holds `lock`, which the
system takes from a process that ends.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from enum import IntEnum, auto
from typing import Any


class Shared(IntEnum):
    """What is shared. Bytes and counts are those of one worker."""

    STATUS = 0
    """By the order of `HealthStatus`, from 1. 0: not started."""
    RESERVED_BYTES = auto()
    WAITING_REQUESTS = auto()
    WANTED_BYTES = auto()
    """What the first request of those that wait for memory needs."""
    QUEUED_ARRAYS = auto()
    QUEUED_TEXTS = auto()
    QUEUED_MODULES = auto()
    PLAN_BYTES = auto()
    CHECKPOINT_JOBS = auto()
    EQUIVALENCE_JOBS = auto()
    CANCELLED_JOB = auto()
    """A comparison that is to stop, in whichever worker it runs."""
    CLOSED_CONNECTIONS = auto()
    """Of the connections that the supervisor has handed over."""
    REPORTS = auto()
    """How often the worker has written its report (`requant_service.runtime.reports`)."""
    GENERATION = auto()
    """The supervisor's: how often the registered regions of shared memory have changed."""
    RESTARTS = auto()
    """The supervisor's: how many workers were started in the place of one that had died."""


class SharedNumbers:
    """The numbers of `workers` processes, and of their supervisor. `index`: which worker this process is."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self.index = 0
        self._supervisor = workers
        self._row = workers + 1
        size = 8 * self._row * len(Shared)
        self._numbers = memoryview(bytearray(size) if workers == 1 else mmap.mmap(-1, size)).cast("q")
        # One descriptor, for all of the process's life: to close another of the same file would release the lock.
        self._lock_file = None if workers == 1 else os.memfd_create("requant-workers")

    def of_worker(self, index: int) -> SharedNumbers:
        """Return the same numbers as that worker has them."""
        other = copy(self)
        other.index = index
        return other

    @property
    def are_shared(self) -> bool:
        """Whether there is more than one worker."""
        return self.workers > 1

    def put(self, which: Shared, value: int) -> None:
        """Set this worker's number."""
        self._numbers[which * self._row + self.index] = value

    def add(self, which: Shared, change: int) -> None:
        """Change this worker's number."""
        self._numbers[which * self._row + self.index] += change

    def own(self, which: Shared) -> int:
        """Return this worker's number."""
        return self._numbers[which * self._row + self.index]

    def of(self, worker: int, which: Shared) -> int:
        """Return the number of a worker."""
        return self._numbers[which * self._row + worker]

    def all_of(self, which: Shared) -> list[int]:
        """Return the numbers of all workers."""
        begin = which * self._row
        return self._numbers[begin : begin + self.workers].tolist()

    def total(self, which: Shared) -> int:
        """Return the sum of all workers' numbers."""
        return sum(self.all_of(which))

    def of_service(self, which: Shared) -> int:
        """Return the supervisor's number."""
        return self._numbers[which * self._row + self._supervisor]

    def add_to_service(self, which: Shared, change: int) -> None:
        """Change the supervisor's number. Called by the supervisor."""
        self._numbers[which * self._row + self._supervisor] += change

    def forget(self, which: Shared, value: int) -> None:
        """Set the numbers of all workers that are `value` to 0."""
        for worker in range(self.workers):
            if self.of(worker, which) == value:
                self._numbers[which * self._row + worker] = 0

    def clear(self, worker: int) -> None:
        """Set all numbers of a worker that has ended to 0, except that of its reports. Called by the supervisor."""
        for which in Shared:
            if which is not Shared.REPORTS:
                self._numbers[which * self._row + worker] = 0

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other workers, though not other threads of this one, from holding the lock at the same time."""
        if self._lock_file is None:
            yield
            return
        fcntl.lockf(self._lock_file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock_file, fcntl.LOCK_UN)


class CountedConnections(set[Any]):
    """The open connections of one port of a worker. The supervisor sees how many were closed."""

    def __init__(self, numbers: SharedNumbers) -> None:
        super().__init__()
        self._numbers = numbers

    def discard(self, connection: Any) -> None:
        """Remove a connection that was lost."""
        if connection in self:
            super().discard(connection)
            self._numbers.add(Shared.CLOSED_CONNECTIONS, 1)
