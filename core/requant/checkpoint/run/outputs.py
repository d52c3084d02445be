"""The files that a run writes, of whatever format: each is pieces of work, and has its name when all are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

import numpy as np

from requant.checkpoint.run.destination import FinishedFile
from requant.checkpoint.run.work import MEMORY, Piece, ProgressCounter, WorkItem, run_items
from requant.checkpoint.storage.store import FileWriter, Store, StoredFile
from requant.checkpoint.weights.floats import Array

Stages = Iterator[Iterable[Piece]]


class Buffers:
    """Memory for pieces: no more of it than was in use at any one time."""

    def __init__(self) -> None:
        self._free: list[Array] = []
        self._lock = Lock()

    @contextmanager
    def of(self, size: int) -> Iterator[Array]:
        """Give `size` bytes, whatever is in them, until the context ends."""
        with self._lock:
            fitting = [index for index, free in enumerate(self._free) if free.size >= size]
            if fitting:
                buffer = self._free.pop(min(fitting, key=lambda index: self._free[index].size))
            else:
                # One that is too small makes room for it.
                del self._free[:1]
                buffer = np.empty(size, np.uint8)
        try:
            yield buffer[:size]
        finally:
            with self._lock:
                self._free.append(buffer)


def bytes_at_a_time(source: Store, threads: int) -> int:
    """Return how many bytes to read at a time: each thread has them, and what becomes of them."""
    return min(source.read_size, MEMORY // (2 * threads))


@dataclass(frozen=True)
class SourceReader:
    """What pieces read from. `read_size`: the bytes to ask for at a time."""

    store: Store
    counter: ProgressCounter
    read_size: int
    buffers: Buffers = field(default_factory=Buffers, kw_only=True)

    def copy(self, file: StoredFile, begin: int, end: int, writer: FileWriter, target: int) -> Iterator[Piece]:
        """Yield the pieces that copy the bytes [begin, end) of a file to `target`."""
        together = self.store.copy_size or self.read_size
        for at in range(begin, end, together):
            size = min(together, end - at)
            memory = min(self.read_size, size)
            yield Piece(memory, partial(self._copy_piece, file, at, size, writer, target + at - begin))

    def _copy_piece(self, file: StoredFile, at: int, size: int, writer: FileWriter, target: int) -> None:
        if not self.store.copy_into(file, at, size, writer, target):
            for begin in range(0, size, self.read_size):
                with self.buffers.of(min(self.read_size, size - begin)) as data:
                    self.store.read_into(file, at + begin, data.data)
                    writer.write(target + begin, data.data)
        self.counter.add(read=size, written=size)


@dataclass(frozen=True, slots=True)
class Output:
    """A file of `size` bytes. `stages` is called with its writer, and returns those of each item of its work.

    `writer`: of a file that was begun before.
    """

    name: str
    size: int
    stages: Callable[[FileWriter], Sequence[Stages]]
    writer: FileWriter | None = None


def write_outputs(
    outputs: Iterable[Output],
    destination: Store,
    counter: ProgressCounter,
    record: Callable[[FinishedFile], None],
    threads: int,
) -> None:
    """Write files, begun in their order. `record` is called with each once it is committed.

    Raises what the pieces and the store raise; files that are not committed then are removed.
    """
    begun: list[_OpenOutput] = []

    def committed(file: FinishedFile) -> None:
        record(file)
        counter.add(finished=1)

    def items() -> Iterator[WorkItem]:
        for output in outputs:
            writer = destination.create(output.name, output.size) if output.writer is None else output.writer
            open_output = _OpenOutput(output, writer, committed)
            begun.append(open_output)
            yield from open_output.items()

    try:
        run_items(items(), threads)
    finally:
        for open_output in begun:
            open_output.writer.discard()


@dataclass(slots=True)
class _OpenOutput:
    """A file that is being written. It is committed when the last of its items is done."""

    output: Output
    writer: FileWriter
    committed: Callable[[FinishedFile], None]
    unfinished: int = 0

    def items(self) -> list[WorkItem]:
        items = [WorkItem(each, self._item_finished) for each in self.output.stages(self.writer) or [iter(())]]
        self.unfinished = len(items)
        return items

    def _item_finished(self) -> Callable[[], None] | None:
        self.unfinished -= 1
        return None if self.unfinished else self._commit

    def _commit(self) -> None:
        self.committed(FinishedFile(self.output.name, self.output.size, self.writer.commit()))
