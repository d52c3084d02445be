"""Work in pieces, done by threads: jobs with stages, pieces of a stage in any order, a bounded amount at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Condition, Thread

from requant.errors.cancellation import check_cancelled

MEMORY = 64 << 20
"""The maximum total bytes of buffers of the pieces in progress, unless a single piece needs more."""

_JOBS_AT_ONCE = 16
_CLOSING_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """A unit of work of one thread. `memory`: the approximate bytes of its buffers."""

    memory: int
    run: Callable[[], None]


@dataclass(slots=True)
class Job:
    """Work in stages: a stage begins when all pieces of the one before are done.

    `finished` is called after the last one. What it returns waits for a disk more than it computes, and is run in a
    thread of its own.
    """

    stages: Iterator[Iterable[Piece]]
    finished: Callable[[], Callable[[], None] | None]
    pieces: Iterator[Piece] | None = None
    following: Piece | None = None
    running: int = 0


def default_threads() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_jobs(jobs: Iterable[Job], threads: int) -> None:
    """Run all jobs, begun in their order. The first error ends the work and is raised, when no piece runs any more.

    Threads see the context variables of the caller, and ask between two pieces whether the work was cancelled.
    """
    queue = _Queue(iter(jobs))
    workers = [Thread(target=copy_context().run, args=(queue.work,)) for _ in range(threads)]
    try:
        for worker in workers:
            worker.start()
        _join(workers)
        _join(queue.closing)
    except BaseException as error:
        queue.stop(error)
        _join(workers)
        _join(queue.closing)
        raise
    if queue.error is not None:
        raise queue.error


def _join(threads: list[Thread]) -> None:
    for thread in threads:
        if thread.ident is not None:
            thread.join()


@dataclass(slots=True)
class _Queue:
    """The queue of work. All fields are guarded by `condition`."""

    unbegun: Iterator[Job]
    condition: Condition = field(default_factory=Condition)
    active: list[Job] = field(default_factory=list)
    memory: int = 0
    error: BaseException | None = None
    closing: list[Thread] = field(default_factory=list)
    closing_now: int = 0
    all_begun: bool = False

    def work(self) -> None:
        """Run pieces until there are none."""
        try:
            while (taken := self._take()) is not None:
                job, piece = taken
                check_cancelled()
                piece.run()
                self._done(job, piece)
        except BaseException as error:
            self.stop(error)

    def stop(self, error: BaseException) -> None:
        """Let no further piece begin."""
        with self.condition:
            self.error = self.error or error
            self.condition.notify_all()

    def _take(self) -> tuple[Job, Piece] | None:
        """Return the next piece, waiting for one; None at the end."""
        with self.condition:
            while self.error is None:
                job = self._job_with_piece()
                if job is None and not self.active and self.all_begun:
                    self.condition.notify_all()
                    return None
                if job is not None and job.following is not None:
                    piece = job.following
                    if not self.memory or self.memory + piece.memory <= MEMORY:
                        job.following = None
                        job.running += 1
                        self.memory += piece.memory
                        return job, piece
                self.condition.wait()
            return None

    def _job_with_piece(self) -> Job | None:
        """Return the oldest job that has a piece to begin. While some only wait for their stage, later ones begin."""
        for job in [*self.active]:
            if self._advance(job):
                return job
        while not self.all_begun and len(self.active) < _JOBS_AT_ONCE and self.closing_now < _CLOSING_AT_ONCE:
            begun = next(self.unbegun, None)
            if begun is None:
                self.all_begun = True
                break
            self.active.append(begun)
            if self._advance(begun):
                return begun
        return None

    def _advance(self, job: Job) -> bool:
        """Make `job.following` its next piece. False: it waits for pieces that run, or is finished."""
        while job.following is None:
            if job.pieces is not None:
                job.following = next(job.pieces, None)
                if job.following is not None:
                    break
                if job.running:
                    return False
            stage = next(job.stages, None)
            if stage is None:
                self.active.remove(job)
                self._close(job.finished())
                return False
            job.pieces = iter(stage)
        return True

    def _done(self, job: Job, piece: Piece) -> None:
        with self.condition:
            job.running -= 1
            self.memory -= piece.memory
            if not job.running and job.following is None:
                self._advance(job)
            self.condition.notify_all()

    def _close(self, close: Callable[[], None] | None) -> None:
        if close is not None:
            self.closing_now += 1
            thread = Thread(target=copy_context().run, args=(self._run_close, close))
            self.closing.append(thread)
            thread.start()

    def _run_close(self, close: Callable[[], None]) -> None:
        try:
            close()
        except BaseException as error:
            self.stop(error)
        with self.condition:
            self.closing_now -= 1
            self.condition.notify_all()
