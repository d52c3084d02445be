"""The state of a plan at its destination: `requant-manifest.json`, a record of each file while the work goes on, and
the files themselves.

The manifest names the plan when the work begins. Each finished file gets a record of its own, so that workers on
several machines do not write one file; the end of the work moves them into the manifest. It holds no times: equal
sources and requests make equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from requant.checkpoint.plan.model import Plan
from requant.checkpoint.plan.source import MANIFEST
from requant.checkpoint.run.certificate import Certificate, certificate_of
from requant.checkpoint.run.verdicts import Verdict, verdict_of
from requant.checkpoint.small_json import parse_small_json
from requant.checkpoint.storage.local_writer import PART
from requant.checkpoint.storage.store import Store, StoredFile
from requant.errors import DestinationError, StorageError, excerpt

RECORDS = "requant-progress/"
CERTIFICATE = "certificate"
SEAL = "sha256"
"""The member that has the SHA-256 of the others."""
_VERSION = 1
_MAX_BYTES = 16 << 20
"""20,000 files, a request with thousands of names to ignore, and a certificate of 90,000 tensors take less. What is
parsed takes twenty times as much memory."""


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """A file of the destination that is complete and durable. `verdicts`: of its tensors, while a run that certifies
    them is not finished."""

    name: str
    size: int
    sha256: str
    verdicts: Mapping[str, Verdict] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The plan that a destination belongs to, and its finished files by name. `certificate`: once all are."""

    plan: str
    request: Mapping[str, Any]
    files: Mapping[str, FinishedFile]
    certificate: Certificate | None = None


def read_manifest(destination: Store, listing: tuple[StoredFile, ...] | None = None) -> Manifest | None:
    """Return the manifest with the records so far; None where there is none.

    `listing`: the files of the destination, where the caller has it. Raises DestinationError for a manifest that
    cannot be read, StorageError.
    """
    data = destination.get(MANIFEST, _MAX_BYTES)
    if data is None:
        return None
    manifest = _parsed(data, f"{MANIFEST} of the destination", "choose an empty destination")
    files = dict(manifest.files)
    for file in destination.files() if listing is None else listing:
        if file.name.startswith(RECORDS) and file.name.endswith(".json"):
            record = destination.get(file.name, _MAX_BYTES)
            if record is None:
                # Another worker has moved the records into the manifest since it was read.
                return read_manifest(destination)
            finished = _record(record, manifest.plan)
            if finished is not None:
                files[finished.name] = finished
    return replace(manifest, files=files)


def manifest_name(file: str) -> str:
    """Return the name of the manifest of a model that is one file, beside which it lies."""
    return f"{file}.{MANIFEST}"


def read_file_manifest(folder: Store, file: str) -> Manifest | None:
    """Return the manifest of a model that is one file; None where there is none. Raises as `read_manifest`."""
    data = folder.get(manifest_name(file), _MAX_BYTES)
    return None if data is None else _parsed(data, manifest_name(file), "remove it")


def _parsed(data: bytes, name: str, instead: str) -> Manifest:
    try:
        parsed = parse_small_json(data, _MAX_BYTES)
        if parsed["version"] != _VERSION:
            raise DestinationError(f"{name} has version {parsed['version']!r}; expected {_VERSION}")
        files = {
            str(name): FinishedFile(str(name), int(entry["size"]), str(entry["sha256"]))
            for name, entry in parsed["files"].items()
        }
        certificate = certificate_of(parsed[CERTIFICATE]) if CERTIFICATE in parsed else None
        return Manifest(str(parsed["plan"]), dict(parsed["request"]), files, certificate)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise DestinationError(f"{name} is not a manifest: {instead}", file=MANIFEST) from None


def begin_manifest(destination: Store, plan: Plan) -> bool:
    """Claim the destination for this plan. False: there already is a manifest."""
    return destination.put(MANIFEST, manifest_text(plan.digest, plan.request.members, {}), only_if_absent=True)


def add_record(destination: Store, plan: Plan, file: FinishedFile) -> None:
    """Write that a file is complete: after it is."""
    record: dict[str, Any] = {"plan": plan.digest, "name": file.name, "size": file.size, "sha256": file.sha256}
    if file.verdicts:
        record["verdicts"] = {name: verdict.members for name, verdict in file.verdicts.items()}
    destination.put(record_name(file.name, ".json"), json.dumps(record, ensure_ascii=False).encode())


def record_name(file: str, ending: str) -> str:
    """Return the name of what is recorded about a file: of one length, since that of the file may be the longest."""
    return f"{RECORDS}{sha256(file.encode()).hexdigest()}{ending}"


def complete_manifest(
    destination: Store, plan: Plan, files: Mapping[str, FinishedFile], certificate: Certificate | None
) -> None:
    """Write the manifest with all files, and remove the records."""
    destination.put(MANIFEST, manifest_text(plan.digest, plan.request.members, files, certificate))
    for file in destination.files():
        if file.name.startswith(RECORDS):
            destination.remove(file.name)


def manifest_text(
    plan: str,
    request: Mapping[str, Any],
    files: Mapping[str, FinishedFile],
    certificate: Certificate | None = None,
) -> bytes:
    """Return the text of a manifest. `plan`: its digest. Raises DestinationError for one that is not read again."""
    entries = {name: {"size": files[name].size, "sha256": files[name].sha256} for name in sorted(files)}
    members = {"version": _VERSION, "plan": plan, "request": request, "files": entries}
    text = sealed(members if certificate is None else {**members, CERTIFICATE: certificate.members})
    if len(text) > _MAX_BYTES:
        raise DestinationError(
            f"{MANIFEST} would have more than {_MAX_BYTES} bytes: convert without a certificate, or a part of the model"
        )
    return text


def sealed(members: Mapping[str, Any]) -> bytes:
    """Return the text of a manifest: its members, and the SHA-256 of the text without that."""
    digest = sha256(json.dumps(members, indent=2, ensure_ascii=False).encode()).hexdigest()
    return (json.dumps({**members, SEAL: digest}, indent=2, ensure_ascii=False) + "\n").encode()


def _record(data: bytes, plan: str) -> FinishedFile | None:
    """Return the contents of a record; None if it belongs to another plan or cannot be read: the file is then
    rewritten."""
    try:
        parsed = parse_small_json(data, _MAX_BYTES)
        if parsed["plan"] != plan:
            return None
        verdicts = {str(name): verdict_of(verdict) for name, verdict in parsed.get("verdicts", {}).items()}
        return FinishedFile(str(parsed["name"]), int(parsed["size"]), str(parsed["sha256"]), verdicts)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


CONFIG, INDEX = "config.json", "model.safetensors.index.json"


def check_apart(source: Store, destination: Store) -> None:
    """Raise DestinationError if the destination is the source or inside it."""
    if destination.overlaps(source):
        raise DestinationError(
            f"{destination.url} is the source {source.url} or is inside it: choose another destination"
        )


def prepare(plan: Plan, destination: Store, *, alone: bool) -> dict[str, FinishedFile]:
    """Return the finished files of the plan at the destination, and begin the manifest.

    The caller holds the lock. `alone`: no other process writes there, so that what a killed one left is removed.
    Raises DestinationError for files of something else, StorageError where what is missing does not fit.
    """
    listing, expected = destination.files(), expected_files(plan)
    manifest = read_manifest(destination, listing)
    if manifest is not None and manifest.plan != plan.digest:
        raise DestinationError(
            f"{destination.url} holds the output of another plan ({_described(manifest.request)}), or of the same "
            "plan for another source, request or version: choose an empty destination, or empty this one"
        )
    foreign = [file.name for file in listing if not _belongs(file.name, expected, begun=manifest is not None)]
    if foreign:
        raise DestinationError(
            f"{destination.url} holds files that do not belong to this conversion, such as '{excerpt(foreign[0])}': "
            "choose an empty destination, or remove them",
            file=foreign[0],
        )
    if alone:
        for file in listing:
            if file.name.endswith(PART) and not _is_hidden(file.name) and file.name not in expected:
                destination.remove(file.name)
    if manifest is None and not begin_manifest(destination, plan):
        # Another one has begun meanwhile, of this plan or of another.
        return prepare(plan, destination, alone=alone)
    sizes = {file.name: file.size for file in listing}
    recorded = {} if manifest is None else manifest.files
    kept = {name: file for name, file in recorded.items() if sizes.get(name) == file.size == expected.get(name)}
    if alone:
        if CONFIG in sizes and expected.keys() - kept.keys():
            # Something was removed from a finished destination: it is no model until it is finished again.
            destination.remove(CONFIG)
            kept.pop(CONFIG, None)
        missing = sum(size for name, size in expected.items() if name not in kept)
        free = destination.free_bytes()
        if free is not None and free < missing:
            raise StorageError(f"{destination.url} has {free} bytes free, but {missing} remain to be written")
    return kept


def expected_files(plan: Plan) -> dict[str, int]:
    """Return all files of the finished destination but the manifest, with their sizes."""
    sizes = {task.output: task.header.size for task in plan.tasks}
    sizes |= {file.name: file.size for file in plan.carried}
    if plan.index is not None:
        sizes[INDEX] = len(plan.index)
    sizes |= {name: len(text) for name, text in plan.settings.items()}
    return sizes | {CONFIG: len(plan.config)}


def _is_hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".")


def _belongs(name: str, expected: Collection[str], *, begun: bool) -> bool:
    if _is_hidden(name):
        return True
    if not begun:
        return name.startswith(MANIFEST) and name.endswith(PART)
    if name in expected or name == MANIFEST or name.startswith(RECORDS):
        return True
    # `<name>.part`, or `<name>.<process>-<number>.part` of a small file.
    stem = name.removesuffix(PART)
    small = stem.rpartition(".")[0]
    return name.endswith(PART) and (stem in expected or small in expected or small == MANIFEST)


def _described(request: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {request[key]}" for key in ("direction", "scheme", "profile") if request.get(key))
