"""Models that are one file, and not a directory of safetensors: their plans, and how these are run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, TypeVar

from requant.checkpoint.run.destination import FinishedFile
from requant.checkpoint.run.outputs import Output, SourceReader, Stages, write_outputs
from requant.checkpoint.run.run import RunReport
from requant.checkpoint.run.work import Progress, ProgressCallback, ProgressCounter, thread_count
from requant.checkpoint.storage.store import FileWriter, Store
from requant.errors import DestinationError, StorageError


class FilePlan(ABC):
    """The plan for a model file. `output`: its new name."""

    output: str

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """The files to write, with their sizes in bytes: the model, and what lies beside it, which is written first."""

    @property
    @abstractmethod
    def bytes_to_read(self) -> int:
        """The bytes of all tensors."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return what a dry run prints, as values of JSON."""

    @abstractmethod
    def lines(self) -> Iterable[str]:
        """Yield what a dry run prints, a line for each tensor."""


AnyPlan = TypeVar("AnyPlan", bound=FilePlan)
Conversion = Callable[[AnyPlan, str, SourceReader, FileWriter], Sequence[Stages]]
"""Returns the work on one of the plan's files, by its name: stages of pieces, of items that do not need each other."""


def run_file_plan(
    plan: AnyPlan,
    source: Store,
    destination: Store,
    conversion: Conversion[AnyPlan],
    *,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> RunReport:
    """Write the files of a plan. The model appears last: until then nothing can be loaded. If it never does, what lies
    beside it is removed.

    Raises before anything is written DestinationError where one of the files is there already or another process
    writes it, StorageError where they do not fit or cannot be begun, ParameterError for less than one thread; while it
    runs, what the pieces raise.
    """
    threads, total = thread_count(threads), sum(plan.sizes.values())
    _check_absent(destination, plan.sizes)
    free = destination.free_bytes()
    if free is not None and free < total:
        raise StorageError(f"{destination.url} has {free} bytes free, but {total} are to be written")
    counter = ProgressCounter(
        progress, Progress(bytes_to_read=plan.bytes_to_read, bytes_to_write=total, outputs=len(plan.sizes))
    )
    reader = SourceReader(source, counter, source.read_size)
    files: list[FinishedFile] = []

    def stages(name: str, writer: FileWriter) -> Sequence[Stages]:
        return conversion(plan, name, reader, writer)

    with ExitStack() as begun:
        # The model first: its lock is held until all files have their names, so that they are of one run.
        writers = {name: begun.enter_context(destination.create(name, size)) for name, size in plan.sizes.items()}
        # Another run may have finished before they were locked.
        _check_absent(destination, plan.sizes)
        try:
            for name, size in reversed(plan.sizes.items()):
                output = Output(name, size, partial(stages, name), writers[name])
                write_outputs([output], destination, counter, files.append, threads)
        except BaseException:
            with suppress(StorageError):
                if destination.find(plan.output) is None:
                    for file in files:
                        destination.remove(file.name)
            raise
    return RunReport(tuple(files), (), counter.state.bytes_read, counter.state.bytes_written, ())


def _check_absent(destination: Store, names: Iterable[str]) -> None:
    for name in names:
        if destination.find(name) is not None:
            detail = f"{destination.url} holds '{name}' already: remove it, or choose another name"
            raise DestinationError(detail, file=name)
