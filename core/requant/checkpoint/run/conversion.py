"""Makes files of a plan: in threads, each committed when all of it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from requant.checkpoint.plan.model import Plan, Task
from requant.checkpoint.run.manifest import FinishedFile
from requant.checkpoint.run.matrix_bytes import StoredMatrix
from requant.checkpoint.run.progress import Progress, ProgressCallback, ProgressCounter
from requant.checkpoint.run.steps import Observer, Steps, bytes_to_read, together
from requant.checkpoint.run.work import MEMORY, Job, Piece, default_threads, run_jobs
from requant.checkpoint.storage.store import FileWriter, Store, StoredFile
from requant.errors import ParameterError


def convert_files(
    plan: Plan,
    tasks: tuple[Task, ...],
    carried: tuple[StoredFile, ...],
    source: Store,
    destination: Store,
    record: Callable[[FinishedFile], None],
    *,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
    observe: Observer | None = None,
) -> Progress:
    """Write the outputs of some tasks of a plan, and the files that are copied. Returns a report.

    `record` is called with each file once it is committed. Raises CheckpointError for a NaN or an infinity in a weight,
    SourceChangedError, StorageError, ParameterError for less than one thread.
    """
    groups = {task.output: list(together(task.steps)) for task in tasks}
    counter = ProgressCounter(
        progress,
        Progress(
            bytes_to_read=sum(bytes_to_read(steps) for each in groups.values() for steps in each)
            + sum(file.size for file in carried),
            bytes_to_write=sum(task.header.size for task in tasks) + sum(file.size for file in carried),
            outputs=len(tasks) + len(carried),
        ),
    )
    files = {file.name: file for file in (*plan.sources, *carried)}
    threads = default_threads() if threads is None else threads
    if threads < 1:
        raise ParameterError(f"threads is {threads}; expected 1 or more")
    # What is read and what becomes of it, in each thread.
    read_size = min(source.read_size, MEMORY // (2 * threads))
    steps = Steps(source, files, plan.request.not_finite, counter, observe, read_size)
    open_outputs: list[_Output] = []

    def committed(file: FinishedFile) -> None:
        record(file)
        counter.add(finished=1)

    def jobs() -> Iterator[Job]:
        for task in tasks:
            writer = destination.create(task.output, task.header.size)
            output = _Output(writer, task.output, task.header.size, committed)
            open_outputs.append(output)
            writer.write(0, task.head)
            counter.add(written=len(task.head))
            places = {entry.name: StoredMatrix(entry.dtype, entry.shape, entry.begin) for entry in task.header.tensors}
            yield from output.jobs([steps.stages(each, places, writer) for each in groups[task.output]])
        for file in carried:
            output = _Output(destination.create(file.name, file.size), file.name, file.size, committed)
            open_outputs.append(output)
            yield from output.jobs([steps.copy_file(file, output.writer)])

    try:
        run_jobs(jobs(), threads)
    finally:
        for output in open_outputs:
            output.writer.discard()
    return counter.state


@dataclass(slots=True)
class _Output:
    """A file that is being written. It is committed when the last of its jobs is done."""

    writer: FileWriter
    name: str
    size: int
    record: Callable[[FinishedFile], None]
    unfinished: int = 0

    def jobs(self, stages: Sequence[Iterator[Iterable[Piece]]]) -> list[Job]:
        """Return the jobs that write all of it."""
        jobs = [Job(each, self._job_finished) for each in stages or [iter(())]]
        self.unfinished = len(jobs)
        return jobs

    def _job_finished(self) -> Callable[[], None] | None:
        self.unfinished -= 1
        return None if self.unfinished else self._commit

    def _commit(self) -> None:
        self.record(FinishedFile(self.name, self.size, self.writer.commit()))
