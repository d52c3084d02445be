"""Verifies a converted checkpoint: bit by bit against its source, or its structure without the source."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from threading import Lock, local
from typing import Any

import numpy as np

from requant.checkpoint.plan.dry_run import outputs_of
from requant.checkpoint.plan.model import CopyStep, GivenStep, Plan, Request, Step, Task, request_of
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.plan.source import MANIFEST
from requant.checkpoint.run.certificate import Certificate
from requant.checkpoint.run.destination import CONFIG, INDEX, FinishedFile, expected_files
from requant.checkpoint.run.run import convert_files, source_digests
from requant.checkpoint.run.verdicts import Verdict
from requant.checkpoint.run.work import ProgressCallback, thread_count
from requant.checkpoint.safetensors.header import Header
from requant.checkpoint.storage.store import MAX_BYTES_OF_SMALL_FILE, FileWriter, Store, StoredFile
from requant.checkpoint.verify.stored_values import check_stored_values
from requant.checkpoint.verify.structure import Fault, Structure, check_structure
from requant.errors import (
    CheckpointError,
    ParameterError,
    SourceChangedError,
    StorageError,
    UnknownNameError,
    VerificationError,
    excerpt,
)


@dataclass(frozen=True, slots=True)
class ByteDifference:
    """Bytes of a file that differ from the conversion of the source.

    `tensor`: the one that holds them; None for the header and for files without tensors. `offset`: of the first one,
    from the start of the tensor, or of the file. `bytes`: how many there are.
    """

    file: str
    tensor: str | None
    offset: int
    bytes: int


class ComparedStore(Store):
    """The files of `store`, with writers that compare. `headers`: of the files that hold tensors, by name."""

    def __init__(self, store: Store, headers: Mapping[str, Header]) -> None:
        self.store = store
        self.url = store.url
        self.compared = 0
        self._headers = headers
        self._files = {file.name: file for file in store.files()}
        self._differences: dict[tuple[str, str | None], ByteDifference] = {}
        self._lock = Lock()

    @property
    def differences(self) -> tuple[ByteDifference, ...]:
        """The differences so far, one per tensor, by file and position."""
        return tuple(sorted(self._differences.values(), key=lambda each: (each.file, each.tensor or "", each.offset)))

    def files(self) -> tuple[StoredFile, ...]:
        return tuple(self._files.values())

    def read_into(self, file: StoredFile, offset: int, target: memoryview) -> None:
        self.store.read_into(file, offset, target)

    def create(self, name: str, size: int) -> FileWriter:
        return _Comparison(self, self._files.get(name), name, size)

    def get(self, name: str, max_bytes: int = MAX_BYTES_OF_SMALL_FILE) -> bytes | None:
        return self.store.get(name, max_bytes)

    def put(self, name: str, data: bytes, *, only_if_absent: bool = False) -> bool:
        raise StorageError(f"{self.url} is compared, not written", file=name)

    def remove(self, name: str) -> None:
        raise StorageError(f"{self.url} is compared, not written", file=name)

    def note(self, name: str, position: int, compared: int, differing: int) -> None:
        """Count bytes that were compared from `position` of a file on, the first of `differing` ones being there."""
        with self._lock:
            self.compared += compared
            if not differing:
                return
            tensor, offset = self._place(name, position)
            before = self._differences.get((name, tensor))
            if before is not None:
                offset, differing = min(offset, before.offset), differing + before.bytes
            self._differences[name, tensor] = ByteDifference(name, tensor, offset, differing)

    def _place(self, name: str, position: int) -> tuple[str | None, int]:
        header = self._headers.get(name)
        tensors = header.tensors if header is not None else ()
        at = bisect_right(tensors, position, key=lambda entry: entry.begin) - 1
        return (None, position) if at < 0 else (tensors[at].name, position - tensors[at].begin)


class _Comparison(FileWriter):
    def __init__(self, store: ComparedStore, file: StoredFile | None, name: str, size: int) -> None:
        self._store, self._file, self._name, self._size = store, file, name, size
        self._memory = local()

    def write(self, offset: int, data: bytes | memoryview) -> None:
        expected = np.frombuffer(data, np.uint8)
        file = self._file
        if file is None or file.size != self._size:
            return  # The structure says so, once for the file.
        stored = self._bytes(expected.size)
        try:
            self._store.read_into(file, offset, stored.data)
        except SourceChangedError as error:
            raise StorageError(f"{self._name} changed during verification", file=self._name) from error
        differing = np.flatnonzero(stored != expected)
        first = int(differing[0]) if differing.size else 0
        self._store.note(self._name, offset + first, expected.size, differing.size)

    def _bytes(self, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        memory: np.ndarray[tuple[int], np.dtype[np.uint8]] = getattr(self._memory, "bytes", np.empty(0, np.uint8))
        if memory.size < size:
            memory = self._memory.bytes = np.empty(size, np.uint8)
        return memory[:size]

    def commit(self) -> str:
        """Return no digest: nothing was written."""
        return ""

    def discard(self) -> None:
        """Nothing was written."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What was checked, and the faults.

    `tensors`: how many of the destination. `tensors_compared`, `bytes_compared`: with what the source gives.
    `files_hashed`: whose SHA-256 was compared with the manifest. `sample`, `seed`: the share of the tensors that was
    to be compared, and what chose them. `conversion`: the plan that makes the checkpoint of its source; None without
    one. `dequantization`: the plan that gives its weights back; None where it is not quantized, or a fault says why.
    `warnings`: what is unusual and no fault.
    """

    faults: tuple[Fault, ...]
    tensors: int
    tensors_compared: int
    bytes_compared: int
    files_hashed: int
    sample: float
    seed: int
    conversion: Plan | None = field(default=None, repr=False)
    dequantization: Plan | None = field(default=None, repr=False)
    warnings: tuple[Fault, ...] = ()

    def raise_faults(self) -> None:
        """Raise VerificationError if anything was wrong."""
        if self.faults:
            first = self.faults[0]
            more = f" ({len(self.faults) - 1} more faults)" if len(self.faults) > 1 else ""
            raise VerificationError(f"{first.detail}{more}", file=first.file, tensor=first.tensor)


def verify(
    store: Store,
    source: Store | None = None,
    *,
    request: Request | None = None,
    sample: float = 1.0,
    seed: int = 0,
    hashes: bool = True,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> Verification:
    """Verify the checkpoint at `store`.

    With `source`, the checkpoint that it was converted from, the conversion is repeated in memory and compared byte by
    byte; `request` says which it was where there is no manifest. `sample`: the share of the tensors for which that is
    done, chosen by `seed`: at least one. Without `source`, and besides, `check_structure` and `check_stored_values`.
    A value that is no different from what the source gives is no fault, but a warning.

    Raises ParameterError for a sample outside of (0, 1] and for less than one thread, CheckpointError where the source
    cannot be planned or the request is unknown, StorageError, SourceChangedError. Faults of the destination are not
    raised but returned.
    """
    threads = thread_count(threads)
    if not 0 < sample <= 1:
        raise ParameterError(f"the sample is {sample}; expected a share in (0, 1]")
    structure = check_structure(store, hashes=hashes)
    tensors = 0 if structure.source is None else sum(len(s.header.tensors) for s in structure.source.shards.values())
    wrong_values: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()
    if structure.source is not None and structure.dequantization is not None:
        wrong_values, warnings = check_stored_values(structure.dequantization, structure.source, store, threads=threads)
    without_source = Verification(
        (*structure.faults, *wrong_values),
        tensors,
        0,
        0,
        structure.files_hashed,
        sample,
        seed,
        dequantization=structure.dequantization,
        warnings=warnings,
    )
    if source is None:
        return without_source
    plan = plan_conversion(source, request) if request is not None else _recorded_conversion(source, structure)
    faults = [*structure.faults, *_wrong_files(plan, store)]
    tasks = plan.tasks if sample == 1 else sampled(plan.tasks, sample, seed)
    compared = ComparedStore(store, {task.output: task.header for task in plan.tasks})
    carried = plan.carried if sample == 1 else ()
    remade: list[FinishedFile] = []
    convert_files(plan, tasks, carried, source, compared, remade.append, threads=threads, progress=progress)
    if plan.request.certify and structure.manifest is not None and structure.manifest.certificate is not None:
        stated = structure.manifest.certificate
        faults += wrong_verdicts(stated, {name: each for file in remade for name, each in file.verdicts.items()})
        if hashes:
            faults += wrong_digests(stated, source_digests(plan, source, {}))
    differing = {each.tensor for each in compared.differences}
    equal = {name for task in tasks for step in task.steps for name in outputs_of(step)} - differing
    sizes = {file.name: file.size for file in store.files()}
    complete = {task.output for task in plan.tasks if sizes.get(task.output) == task.header.size}
    as_converted: list[Fault] = []
    for each in wrong_values:
        (as_converted if each.tensor in equal and each.file in complete else faults).append(each)
    faults += differences_of(compared)
    return replace(
        without_source,
        faults=tuple(faults),
        tensors_compared=sum(len(outputs_of(step)) for task in tasks for step in task.steps),
        bytes_compared=compared.compared,
        conversion=plan,
        warnings=(*warnings, *as_converted),
    )


def sampled(tasks: tuple[Task, ...], share: float, seed: int) -> tuple[Task, ...]:
    """Return the tasks with about a share of their steps: those with the lowest hashes of seed and name."""

    def rank(step: Step) -> bytes:
        return sha256(f"{seed}/{step_name(step)}".encode()).digest()

    ranked = sorted((step for task in tasks for step in task.steps), key=rank)
    chosen = {step_name(step) for step in ranked[: max(1, round(share * len(ranked)))]}
    return tuple(
        replace(task, steps=tuple(step for step in task.steps if step_name(step) in chosen))
        for task in tasks
        if any(step_name(step) in chosen for step in task.steps)
    )


def step_name(step: Step) -> str:
    """Return the name of the module or tensor that a step makes."""
    return step.output if isinstance(step, CopyStep | GivenStep) else step.module


def _recorded_conversion(source: Store, structure: Structure) -> Plan:
    """Return the plan of the request that the manifest names. Raises CheckpointError for one that cannot be planned."""
    if structure.manifest is None:
        raise CheckpointError(
            f"there is no {MANIFEST} that describes how the checkpoint was made: give --scheme, and --profile and "
            "--ignore where they were not the defaults"
        )
    try:
        return plan_conversion(source, _stated_request(structure.manifest.request))
    except (UnknownNameError, ParameterError) as error:
        # Nothing of it was given by the caller.
        raise CheckpointError(f"the request in {MANIFEST} cannot be planned: {error.detail}", file=MANIFEST) from None


def _stated_request(members: Mapping[str, Any]) -> Request:
    try:
        return request_of(members)
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"the request in {MANIFEST} cannot be read", file=MANIFEST) from None


def differences_of(compared: ComparedStore) -> list[Fault]:
    """Return the differences that were found as faults."""
    return [
        Fault(
            f"{each.bytes} bytes differ from the conversion of the source, the first at byte {each.offset}"
            + (" of the tensor" if each.tensor is not None else ""),
            each.file,
            each.tensor,
        )
        for each in compared.differences
    ]


def wrong_verdicts(stated: Certificate, derived: Mapping[str, Verdict], manifest: str = MANIFEST) -> Iterator[Fault]:
    """Yield the verdicts that are not those of a certificate. `manifest`: the name of its file."""
    for name, verdict in derived.items():
        if (written := stated.tensors.get(name)) != verdict:
            said = "none" if written is None else json.dumps(written.members)
            yield Fault(f"its verdict is {json.dumps(verdict.members)}; the certificate has {said}", manifest, name)


def wrong_digests(stated: Certificate, digests: Mapping[str, str], manifest: str = MANIFEST) -> Iterator[Fault]:
    """Yield the files of the source that are not those of a certificate, by their SHA-256."""
    for name in sorted(stated.sources.keys() | digests.keys()):
        if stated.sources.get(name) != digests.get(name):
            yield Fault(f"the SHA-256 of the source's file '{excerpt(name)}' is not that of the certificate", manifest)


def _wrong_files(plan: Plan, store: Store) -> list[Fault]:
    """Return what differs in files as a whole: missing ones, sizes, the index and config.json."""
    sizes = {file.name: file.size for file in store.files()}
    faults = []
    for name, size in expected_files(plan).items():
        if name not in sizes:
            faults.append(Fault("the file is missing", name))
        elif sizes[name] != size:
            faults.append(Fault(f"has {sizes[name]} bytes; the conversion of the source has {size}", name))
    for name, text in ((INDEX, plan.index), *plan.settings.items(), (CONFIG, plan.config)):
        if text is not None and sizes.get(name) == len(text) and store.get(name) != text:
            faults.append(Fault("its text differs from the conversion of the source", name))
    return faults
