"""Models that are one file, and not a directory of safetensors: their plans, and how these are run."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from typing import Any, TypeVar

from requant.checkpoint.profiles import CheckpointProfile
from requant.checkpoint.run.certificate import Certificate
from requant.checkpoint.run.destination import FinishedFile, manifest_name, manifest_text
from requant.checkpoint.run.outputs import Output, SourceReader, Stages, bytes_at_a_time, write_outputs
from requant.checkpoint.run.run import RunReport
from requant.checkpoint.run.verdicts import Verdict, Verdicts
from requant.checkpoint.run.work import Progress, ProgressCallback, ProgressCounter, in_threads, thread_count
from requant.checkpoint.safetensors.header import Header
from requant.checkpoint.storage.nowhere import Nowhere
from requant.checkpoint.storage.store import FileWriter, Store, StoredFile
from requant.errors import DestinationError, StorageError

NO_WRITERS: Mapping[str, FileWriter] = MappingProxyType({})


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


class CertifiedPlan(FilePlan):
    """A plan whose conversion can be certified: the manifest lies beside the file, under the name `manifest_name`.

    `head`: the bytes of the file before its tensors.
    """

    head: bytes

    @property
    @abstractmethod
    def profile(self) -> CheckpointProfile | None:
        """Whose bits the file has; None where nothing is quantized."""

    @property
    @abstractmethod
    def members(self) -> dict[str, Any]:
        """The request as members of JSON."""

    @property
    @abstractmethod
    def header(self) -> Header:
        """Where the tensors lie in the file."""

    @abstractmethod
    def read_files(self, source: Store) -> dict[str, tuple[Store, StoredFile]]:
        """Return the files that are read, each under the name that it has in the certificate, and where they lie.

        `source`: the store of the source, whose files have their own names.
        """

    def digest(self, source: Store) -> str:
        """Return the SHA-256, in hex, of the request, of names and sizes of what is read, and of the file's header."""
        read = {name: file.size for name, (_, file) in self.read_files(source).items()}
        stated = [self.members, read, sha256(self.head).hexdigest()]
        return sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()

    def source_digests(self, source: Store) -> dict[str, str]:
        """Return the SHA-256 of the files that are read, by name."""
        read = self.read_files(source)
        digests = in_threads(lambda each: each[0].sha256(each[1]), read.values(), None)
        return dict(zip(read, digests, strict=True))


AnyPlan = TypeVar("AnyPlan", bound=FilePlan)
AnyCertifiedPlan = TypeVar("AnyCertifiedPlan", bound=CertifiedPlan)
Conversion = Callable[[AnyPlan, str, SourceReader, FileWriter], Sequence[Stages]]
"""Returns the work on one of the plan's files, by its name: stages of pieces, of items that do not need each other."""
CertifiedConversion = Callable[[Verdicts | None, AnyPlan, str, SourceReader, FileWriter], Sequence[Stages]]
"""Likewise, and the work compares the numbers of both sides, if there are verdicts to note."""


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

    Raises before anything is written DestinationError where one of the files, or a manifest of the model, is there
    already or another process writes it, StorageError where they do not fit or cannot be begun, ParameterError for less
    than one thread; while it runs, what the pieces raise.
    """
    threads, total = thread_count(threads), sum(plan.sizes.values())
    names = (*plan.sizes, manifest_name(plan.output))
    _check_absent(destination, names)
    free = destination.free_bytes()
    if free is not None and free < total:
        raise StorageError(f"{destination.url} has {free} bytes free, but {total} are to be written")
    files: list[FinishedFile] = []
    with ExitStack() as begun:
        # The model first: its lock is held until all files have their names, so that they are of one run.
        writers = {name: begun.enter_context(destination.create(name, size)) for name, size in plan.sizes.items()}
        # Another run may have finished before they were locked.
        _check_absent(destination, names)
        try:
            done = convert_file(
                plan, source, destination, conversion, files.append, writers, threads=threads, progress=progress
            )
        except BaseException:
            with suppress(StorageError):
                if destination.find(plan.output) is None:
                    for file in files:
                        destination.remove(file.name)
            raise
    return RunReport(tuple(files), (), done.bytes_read, done.bytes_written, ())


def convert_file(
    plan: AnyPlan,
    source: Store,
    destination: Store,
    conversion: Conversion[AnyPlan],
    record: Callable[[FinishedFile], None],
    writers: Mapping[str, FileWriter] = NO_WRITERS,
    *,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> Progress:
    """Make the files of a plan, the model last. `record` is called with each; `writers`: of files that were begun."""
    threads, total = thread_count(threads), sum(plan.sizes.values())
    counter = ProgressCounter(
        progress, Progress(bytes_to_read=plan.bytes_to_read, bytes_to_write=total, outputs=len(plan.sizes))
    )
    reader = SourceReader(source, counter, bytes_at_a_time(source, threads))

    def stages(name: str, writer: FileWriter) -> Sequence[Stages]:
        return conversion(plan, name, reader, writer)

    for name, size in reversed(plan.sizes.items()):
        output = Output(name, size, partial(stages, name), writers.get(name))
        write_outputs([output], destination, counter, record, threads)
    return counter.state


def run_certified_plan(
    plan: AnyCertifiedPlan,
    source: Store,
    destination: Store,
    conversion: CertifiedConversion[AnyCertifiedPlan],
    *,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> RunReport:
    """Write the file of a plan, and then its manifest with the certificate. Raises as `run_file_plan`."""
    verdicts = Verdicts()
    report = run_file_plan(plan, source, destination, partial(conversion, verdicts), threads=threads, progress=progress)
    certificate = Certificate.of(plan.profile, plan.source_digests(source), verdicts.all)
    files = {file.name: file for file in report.files}
    text = manifest_text(plan.digest(source), plan.members, files, certificate)
    destination.put(manifest_name(plan.output), text)
    return replace(report, verdicts=certificate.tensors)


def verdicts_of_file(
    plan: AnyCertifiedPlan,
    source: Store,
    conversion: CertifiedConversion[AnyCertifiedPlan],
    *,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> Mapping[str, Verdict]:
    """Return the verdicts of the tensors of a plan, by running it without writing."""
    verdicts = Verdicts()
    dropped: list[FinishedFile] = []
    convert_file(
        plan, source, Nowhere(), partial(conversion, verdicts), dropped.append, threads=threads, progress=progress
    )
    return verdicts.all


def _check_absent(destination: Store, names: Iterable[str]) -> None:
    for name in names:
        if destination.find(name) is not None:
            detail = f"{destination.url} holds '{name}' already: remove it, or choose another name"
            raise DestinationError(detail, file=name)
