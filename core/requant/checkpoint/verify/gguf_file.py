"""Verifies a GGUF file that was made here, by its manifest: its bytes, and with the source again the conversion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from requant.checkpoint.gguf.header import GgufHeader, read_header
from requant.checkpoint.gguf.importance import ImportanceMatrix
from requant.checkpoint.gguf.plan import GgufPlan, plan_gguf
from requant.checkpoint.gguf.quantize import stages_of_gguf
from requant.checkpoint.gguf.repack import GgufTarget, RepackPlan, plan_repack_to_gguf, stages_of_repack
from requant.checkpoint.plan.model import Repack, request_of
from requant.checkpoint.run.destination import FinishedFile, Manifest, manifest_name, read_file_manifest
from requant.checkpoint.run.file_plan import AnyCertifiedPlan, CertifiedConversion, convert_file
from requant.checkpoint.run.verdicts import Verdicts
from requant.checkpoint.run.work import ProgressCallback
from requant.checkpoint.storage.store import Store, file_named
from requant.checkpoint.verify.structure import Fault, changed_files, changes_of
from requant.checkpoint.verify.verification import (
    ComparedStore,
    Verification,
    differences_of,
    wrong_digests,
    wrong_verdicts,
)
from requant.errors import CheckpointError, DestinationError, ParameterError, StorageError, UnknownNameError, excerpt


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """What a file holds. `header`: None where it could not be read, and a fault says so; `manifest`: also where
    there is none.
    """

    faults: tuple[Fault, ...]
    header: GgufHeader | None
    manifest: Manifest | None
    files_hashed: int


@dataclass(frozen=True, slots=True)
class MadeOf:
    """What a GGUF file was made of: a GGUF file, `name` in `folder`, with the importance matrix if there was one; or
    the directory `folder`, and the GGUF file `like` of the same model, with its folder.
    """

    folder: Store
    name: str | None = None
    importance: ImportanceMatrix | None = None
    like: tuple[Store, str] | None = None


def check_file(folder: Store, name: str, *, hashes: bool) -> CheckedFile:
    """Check that the file can be read, and is the one that its manifest names. `hashes`: by its SHA-256 too.

    Raises StorageError, also where there is no such file.
    """
    faults: list[Fault] = []
    header, manifest, hashed = None, None, 0
    try:
        header = read_header(folder, file_named(folder, name))
    except StorageError:
        raise
    except CheckpointError as error:
        faults.append(Fault(error.detail, error.file, error.tensor))
    beside = manifest_name(name)
    try:
        manifest = read_file_manifest(folder, name)
    except DestinationError as error:
        faults.append(Fault(error.detail, beside))
    if manifest is not None:
        wrong, hashed = changed_files(folder, manifest, hashes=hashes)
        faults += [*wrong, *(Fault(each, beside) for each in changes_of(folder.get(beside)))]
        if manifest.files.keys() != {name}:
            faults.append(Fault(f"it does not name '{excerpt(name)}' alone", beside))
        if manifest.certificate is None:
            faults.append(Fault("it has no certificate", beside))
    return CheckedFile(tuple(faults), header, manifest, hashed)


def verify_file(
    folder: Store,
    name: str,
    made_of: MadeOf | None = None,
    *,
    hashes: bool = True,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[Verification, Mapping[str, Any] | None]:
    """Verify the GGUF file `name`: `check_file`, and with what it was made of the conversion that its manifest states,
    byte by byte, with the verdict of each tensor and the SHA-256 of what was read.

    Return what was found, and the request that the manifest states. Raises CheckpointError where the manifest is
    missing and a source given, where it cannot be read, and where the conversion cannot be planned; StorageError,
    SourceChangedError, ParameterError. Faults of the file are not raised but returned.
    """
    checked = check_file(folder, name, hashes=hashes)
    tensors = 0 if checked.header is None else len(checked.header.tensors)
    result = Verification(checked.faults, tensors, 0, 0, checked.files_hashed, 1.0, 0)
    manifest = checked.manifest
    if made_of is None:
        return result, None if manifest is None else manifest.request
    if manifest is None:
        raise CheckpointError(
            f"there is no {manifest_name(name)} that describes how the file was made: convert the source again, with "
            "--certify or repack"
        )
    if made_of.name is None:
        plan = _repack(folder, name, manifest, made_of)
        compared, faults = _compared(plan, stages_of_repack, folder, manifest, made_of, hashes, threads, progress)
    else:
        of_gguf = _quantization(name, manifest, made_of, made_of.name)
        compared, faults = _compared(of_gguf, stages_of_gguf, folder, manifest, made_of, hashes, threads, progress)
    result = replace(
        result,
        faults=(*checked.faults, *faults),
        tensors_compared=tensors,
        bytes_compared=compared,
    )
    return result, manifest.request


def _compared(
    plan: AnyCertifiedPlan,
    conversion: CertifiedConversion[AnyCertifiedPlan],
    folder: Store,
    manifest: Manifest,
    made_of: MadeOf,
    hashes: bool,
    threads: int | None,
    progress: ProgressCallback | None,
) -> tuple[int, list[Fault]]:
    """Make the file again. Return how many bytes were compared, and the faults."""
    beside, header = manifest_name(plan.output), plan.header
    store, verdicts, made = ComparedStore(folder, {plan.output: header}), Verdicts(), list[FinishedFile]()
    convert_file(
        plan, made_of.folder, store, partial(conversion, verdicts), made.append, threads=threads, progress=progress
    )
    faults = differences_of(store)
    size = file_named(folder, plan.output).size
    if size != header.size:
        faults.append(Fault(f"has {size} bytes; the conversion of the source has {header.size}", plan.output))
    if manifest.certificate is not None:
        faults += wrong_verdicts(manifest.certificate, verdicts.all, beside)
        if hashes:
            faults += wrong_digests(manifest.certificate, plan.source_digests(made_of.folder), beside)
    return store.compared, faults


def _quantization(name: str, manifest: Manifest, made_of: MadeOf, source: str) -> GgufPlan:
    """Return the plan of the conversion of another GGUF file that a manifest states."""
    stated, importance = manifest.request, made_of.importance
    try:
        type_, ignore, pure, path = (stated[key] for key in ("type", "ignore", "pure", "imatrix"))
        if not isinstance(type_, str) or not isinstance(pure, bool) or not _are_texts(ignore):
            raise TypeError
    except (KeyError, TypeError):
        raise CheckpointError(
            f"the request in {manifest_name(name)} is not that of a GGUF file that was made of another: give as source "
            "the directory that it was repacked from",
            file=manifest_name(name),
        ) from None
    if (path is None) != (importance is None):
        raise ParameterError(
            f"{name} was made with an importance matrix: give it too (imatrix, --imatrix)"
            if importance is None
            else f"{name} was made without an importance matrix"
        )
    if importance is not None:
        # A key of the file has the path as it was given then.
        importance = replace(importance, path=str(path))
    try:
        return plan_gguf(made_of.folder, source, name, type_, ignore=ignore, pure=pure, importance=importance)
    except (UnknownNameError, ParameterError) as error:
        raise _not_planned(name, error.detail) from None


def _repack(folder: Store, name: str, manifest: Manifest, made_of: MadeOf) -> RepackPlan:
    """Return the plan of the repack of a directory that a manifest states."""
    try:
        request = request_of(manifest.request)
        (scheme,) = request.schemes
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(
            f"the request in {manifest_name(name)} is not that of a directory that was repacked: give as source the "
            "GGUF file that it was made of",
            file=manifest_name(name),
        ) from None
    if made_of.like is None:
        raise ParameterError(f"{name} was made like a GGUF file of the same model: give it too (like, --like)")
    target = GgufTarget(folder, name, scheme.scheme, *made_of.like)
    # Numbers that were rounded are in the verdicts, and what is not as they say is a fault.
    return plan_repack_to_gguf(made_of.folder, target, allow_rounding=request.repack is not Repack.EXACT)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _not_planned(name: str, detail: str) -> CheckpointError:
    return CheckpointError(
        f"the request in {manifest_name(name)} cannot be planned: {detail}", file=manifest_name(name)
    )
