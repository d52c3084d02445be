"""Work in pieces, done by threads: items with stages, pieces of a stage in any order, a bounded amount at a time; and
its progress.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from threading import Condition, Lock, Thread
from typing import TypeVar

from requant.errors import ParameterError
from requant.errors.cancellation import check_cancelled

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run: done, and in total. Outputs that an earlier run finished are not counted.

    Bytes read are those of the tensors, those of a first pass over a tensor that needs one included.
    """

    bytes_read: int = 0
    bytes_to_read: int = 0
    bytes_written: int = 0
    bytes_to_write: int = 0
    outputs_finished: int = 0
    outputs: int = 0


ProgressCallback = Callable[[Progress], None]


class ProgressCounter:
    """Counts for all threads, and calls `callback` with the sum, one call at a time."""

    def __init__(self, callback: ProgressCallback | None, total: Progress) -> None:
        self._callback = callback
        self._lock = Lock()
        self._total = total
        self._read = self._written = self._finished = 0

    @property
    def state(self) -> Progress:
        """What was counted so far."""
        total = self._total
        return replace(
            total,
            bytes_read=total.bytes_read + self._read,
            bytes_written=total.bytes_written + self._written,
            outputs_finished=total.outputs_finished + self._finished,
        )

    def add(self, *, read: int = 0, written: int = 0, finished: int = 0) -> None:
        """Count bytes and outputs."""
        with self._lock:
            self._read += read
            self._written += written
            self._finished += finished
            if self._callback is not None:
                self._callback(self.state)


MEMORY = 64 << 20
"""The maximum total bytes of buffers of the pieces in progress, unless a single piece needs more."""

_ITEMS_AT_ONCE = 16
_CLOSING_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """A unit of work of one thread. `memory`: the approximate bytes of its buffers."""

    memory: int
    run: Callable[[], None]


@dataclass(slots=True)
class WorkItem:
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


def thread_count(threads: int | None) -> int:
    """Return how many threads to use where `threads` were asked for. Raises ParameterError for less than one."""
    if threads is None:
        return default_threads()
    if threads < 1:
        raise ParameterError(f"threads is {threads}; expected 1 or more")
    return threads


def in_threads(call: Callable[[Item], Answer], items: Iterable[Item], threads: int | None) -> Iterator[Answer]:
    """Yield what `call` returns for each item, in their order. The first error ends the work, once no call runs.

    Raises ParameterError for less than one thread.
    """
    with ThreadPoolExecutor(thread_count(threads)) as pool:
        waiting = [pool.submit(copy_context().run, call, item) for item in items]
        try:
            for future in waiting:
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def run_items(items: Iterable[WorkItem], threads: int) -> None:
    """Run all items, begun in their order. The first error ends the work and is raised, when no piece runs any more.

    Threads see the context variables of the caller, and ask between two pieces whether the work was cancelled.
    """
    queue = _Queue(iter(items))
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

    unbegun: Iterator[WorkItem]
    condition: Condition = field(default_factory=Condition)
    active: list[WorkItem] = field(default_factory=list)
    memory: int = 0
    error: BaseException | None = None
    closing: list[Thread] = field(default_factory=list)
    closing_now: int = 0
    all_begun: bool = False

    def work(self) -> None:
        """Run pieces until there are none."""
        try:
            while (taken := self._take()) is not None:
                item, piece = taken
                check_cancelled()
                piece.run()
                self._done(item, piece)
        except BaseException as error:
            self.stop(error)

    def stop(self, error: BaseException) -> None:
        """Let no further piece begin."""
        with self.condition:
            self.error = self.error or error
            self.condition.notify_all()

    def _take(self) -> tuple[WorkItem, Piece] | None:
        """Return the next piece, waiting for one; None at the end."""
        with self.condition:
            while self.error is None:
                item = self._item_with_piece()
                if item is None and not self.active and self.all_begun:
                    self.condition.notify_all()
                    return None
                if item is not None and item.following is not None:
                    piece = item.following
                    if not self.memory or self.memory + piece.memory <= MEMORY:
                        item.following = None
                        item.running += 1
                        self.memory += piece.memory
                        return item, piece
                self.condition.wait()
            return None

    def _item_with_piece(self) -> WorkItem | None:
        """Return the oldest item that has a piece to begin. While some only wait for their stage, later ones begin."""
        for item in [*self.active]:
            if self._advance(item):
                return item
        while not self.all_begun and len(self.active) < _ITEMS_AT_ONCE and self.closing_now < _CLOSING_AT_ONCE:
            begun = next(self.unbegun, None)
            if begun is None:
                self.all_begun = True
                break
            self.active.append(begun)
            if self._advance(begun):
                return begun
        return None

    def _advance(self, item: WorkItem) -> bool:
        """Make `item.following` its next piece. False: it waits for pieces that run, or is finished."""
        while item.following is None:
            if item.pieces is not None:
                item.following = next(item.pieces, None)
                if item.following is not None:
                    break
                if item.running:
                    return False
            stage = next(item.stages, None)
            if stage is None:
                self.active.remove(item)
                self._close(item.finished())
                return False
            item.pieces = iter(stage)
        return True

    def _done(self, item: WorkItem, piece: Piece) -> None:
        with self.condition:
            item.running -= 1
            self.memory -= piece.memory
            if not item.running and item.following is None:
                self._advance(item)
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
