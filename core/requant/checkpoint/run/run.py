"""Runs a plan, or one task of it, and finishes a destination.

A file has its name only when it is complete and durable. The index is written after all tensors and `config.json` last:
without it no program takes the directory for a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256

from requant.checkpoint.plan.model import GivenStep, Plan, Repack, Task
from requant.checkpoint.profiles import CHECKPOINT_PROFILES
from requant.checkpoint.quantization_config import model_optimizer
from requant.checkpoint.run.certificate import Certificate
from requant.checkpoint.run.destination import (
    CONFIG,
    INDEX,
    FinishedFile,
    add_record,
    check_apart,
    complete_manifest,
    expected_files,
    prepare,
)
from requant.checkpoint.run.outputs import Output, Stages, bytes_at_a_time, write_outputs
from requant.checkpoint.run.steps import Observer, Steps, bytes_to_read, group_by_shared_scale
from requant.checkpoint.run.stored_weight import StoredMatrix
from requant.checkpoint.run.verdicts import Verdict, Verdicts, weight_name
from requant.checkpoint.run.work import Progress, ProgressCallback, ProgressCounter, in_threads, thread_count
from requant.checkpoint.storage.nowhere import Nowhere
from requant.checkpoint.storage.store import FileWriter, Store, StoredFile
from requant.errors import DestinationError, ParameterError


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
    groups = {task.output: list(group_by_shared_scale(task.steps)) for task in tasks}
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
    threads = thread_count(threads)
    verdicts = Verdicts() if plan.request.certify else None
    steps = Steps(source, counter, bytes_at_a_time(source, threads), files, plan.request, observe, verdicts)
    weights: dict[str, list[str]] = {}
    if verdicts is not None:
        for task in tasks:
            weights[task.output] = [weight_name(step) for step in task.steps if not isinstance(step, GivenStep)]

    def committed(file: FinishedFile) -> None:
        if verdicts is not None and file.name in weights:
            file = replace(file, verdicts=verdicts.of(weights[file.name]))
        record(file)

    def task_stages(task: Task, writer: FileWriter) -> list[Stages]:
        head = task.head
        writer.write(0, head)
        counter.add(written=len(head))
        places = {entry.name: StoredMatrix(entry.dtype, entry.shape, entry.begin) for entry in task.header.tensors}
        return [steps.stages(each, places, writer) for each in groups[task.output]]

    def copy_stages(file: StoredFile, writer: FileWriter) -> list[Stages]:
        return [iter([steps.copy(file, 0, file.size, writer, 0)])]

    outputs = [Output(task.output, task.header.size, partial(task_stages, task)) for task in tasks]
    outputs += [Output(file.name, file.size, partial(copy_stages, file)) for file in carried]
    write_outputs(outputs, destination, counter, committed, threads)
    return counter.state


def verdicts_of(
    plan: Plan, source: Store, *, threads: int | None = None, progress: ProgressCallback | None = None
) -> dict[str, Verdict]:
    """Return the verdict of each tensor of a plan, by converting the source without writing. What an exact repack
    would refuse is rounded. Raises as `run_plan`.
    """
    repack = Repack.NO if plan.request.repack is Repack.NO else Repack.ROUNDED
    rehearsed = replace(plan, request=replace(plan.request, repack=repack, certify=True))
    files: list[FinishedFile] = []
    convert_files(rehearsed, plan.tasks, (), source, Nowhere(), files.append, threads=threads, progress=progress)
    return {name: verdict for file in files for name, verdict in file.verdicts.items()}


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did. `files`: the finished files by name; `kept`: the names of those that were there before.

    Once the destination is finished, `files` are those of the manifest: all but the manifest itself. `warnings`: those
    of the plan, such as modules that loaders expect unquantized. `verdicts`: of the tensors of a finished destination,
    by name, if the request was to certify them.
    """

    files: tuple[FinishedFile, ...]
    kept: tuple[str, ...]
    bytes_read: int
    bytes_written: int
    warnings: tuple[str, ...]
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)


def run_plan(
    plan: Plan,
    source: Store,
    destination: Store,
    *,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
    observe: Observer | None = None,
) -> RunReport:
    """Run a plan, except for outputs that an earlier run has finished.

    `threads`: that convert at a time (None: as many as CPUs). `progress` is called after each piece, by one thread at a
    time. What is finished stays when an error is raised, and a later call goes on from there.

    Raises CheckpointError for a NaN or an infinity in a weight; SourceChangedError; DestinationError where another run
    works on the destination, or it holds something else; StorageError.
    """
    check_apart(source, destination)
    with destination.lock():
        kept = prepare(plan, destination, alone=True)
        report = _run(plan, plan.tasks, plan.carried, source, destination, kept, threads, progress, observe)
        return _finish(plan, source, destination, kept, report)


def run_task(
    plan: Plan,
    index: int,
    source: Store,
    destination: Store,
    *,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
    observe: Observer | None = None,
) -> RunReport:
    """Make the output of one task, unless it is there. Other processes may run other tasks at the same time.

    Raises as `run_plan`; DestinationError also where another process makes this output.
    """
    if not 0 <= index < len(plan.tasks):
        raise ParameterError(f"there is no task {index}; the plan has {len(plan.tasks)}", index=index)
    check_apart(source, destination)
    with destination.lock(shared=True):
        kept = prepare(plan, destination, alone=False)
        return _run(plan, (plan.tasks[index],), (), source, destination, kept, threads, progress, observe)


def finish(plan: Plan, source: Store, destination: Store, *, progress: ProgressCallback | None = None) -> RunReport:
    """Write the files that are carried over, the index and `config.json`, once the outputs of all tasks are there.

    Raises DestinationError where outputs are missing or a task still runs, otherwise as `run_plan`.
    """
    check_apart(source, destination)
    with destination.lock():
        kept = prepare(plan, destination, alone=True)
        missing = [task.output for task in plan.tasks if task.output not in kept]
        if missing:
            raise DestinationError(
                f"{len(missing)} of {len(plan.tasks)} outputs are missing, the first is {missing[0]}: "
                "run their tasks first",
                file=missing[0],
            )
        report = _run(plan, (), plan.carried, source, destination, kept, None, progress, None)
        return _finish(plan, source, destination, kept, report)


def _run(
    plan: Plan,
    tasks: tuple[Task, ...],
    carried: tuple[StoredFile, ...],
    source: Store,
    destination: Store,
    kept: dict[str, FinishedFile],
    threads: int | None,
    progress: ProgressCallback | None,
    observe: Observer | None,
) -> RunReport:
    wanted = {*(task.output for task in tasks), *(file.name for file in carried)}
    tasks = tuple(task for task in tasks if task.output not in kept)
    carried = tuple(file for file in carried if file.name not in kept)
    finished = {name: kept[name] for name in wanted if name in kept}
    before = tuple(sorted(finished))

    def record(file: FinishedFile) -> None:
        add_record(destination, plan, file)
        finished[file.name] = file

    done = convert_files(
        plan, tasks, carried, source, destination, record, threads=threads, progress=progress, observe=observe
    )
    files = tuple(finished[name] for name in sorted(finished))
    return RunReport(files, before, done.bytes_read, done.bytes_written, plan.warnings)


def settings_files(source: Store) -> list[StoredFile]:
    """Return the files of a source that say what its tensors are, as far as they exist."""
    names = (CONFIG, model_optimizer.FILE, INDEX)
    return [file for name in names if (file := source.find(name)) is not None]


def source_digests(plan: Plan, source: Store, files: Mapping[str, FinishedFile]) -> dict[str, str]:
    """Return the SHA-256 of each file of the source, by name. `files`: the outputs; those that are copied have it."""
    carried = {file.name: files[file.name].sha256 for file in plan.carried if file.name in files}
    read = (*plan.sources, *plan.carried, *settings_files(source))
    hashed = [file for file in read if file.name not in carried]
    digests = in_threads(source.sha256, hashed, None)
    return carried | {file.name: digest for file, digest in zip(hashed, digests, strict=True)}


def _finish(
    plan: Plan, source: Store, destination: Store, kept: dict[str, FinishedFile], report: RunReport
) -> RunReport:
    """Write the final files, in this order: the index and the settings, the manifest with all files, config.json.

    Return the report with these.
    """
    first = {**({} if plan.index is None else {INDEX: plan.index}), **plan.settings}
    texts = {**first, CONFIG: plan.config}
    last = tuple(FinishedFile(name, len(data), sha256(data).hexdigest()) for name, data in texts.items())
    files = {**kept, **{file.name: file for file in (*report.files, *last)}}
    missing = expected_files(plan).keys() - files.keys()
    if missing:
        raise DestinationError(f"not finished: {sorted(missing)[0]} is missing")
    for name, text in first.items():
        destination.put(name, text)
    certificate = None
    if plan.request.certify:
        tensors = {name: verdict for file in files.values() for name, verdict in file.verdicts.items()}
        certificate = Certificate.of(
            CHECKPOINT_PROFILES.get(plan.request.profile), source_digests(plan, source, files), tensors
        )
    complete_manifest(destination, plan, files, certificate)
    destination.put(CONFIG, plan.config)
    return replace(
        report,
        verdicts={} if certificate is None else certificate.tensors,
        files=tuple(sorted((*report.files, *last), key=lambda file: file.name)),
        kept=tuple(sorted({*report.kept, *(file.name for file in last if file.name in kept)})),
        bytes_written=report.bytes_written + sum(file.size for file in last if file.name not in kept),
    )
