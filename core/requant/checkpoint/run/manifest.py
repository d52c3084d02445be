"""The state of a plan at its destination: `requant-manifest.json`, and while the work goes on, a record of each file.

The manifest names the plan when the work begins. Each finished file gets a record of its own, so that workers on
several machines do not write one file; the end of the work moves them into the manifest. It holds no times: equal
sources and requests make equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from requant.checkpoint.plan.model import Plan
from requant.checkpoint.small_json import parse_small_json
from requant.checkpoint.storage.store import Store, StoredFile
from requant.errors import DestinationError

MANIFEST = "requant-manifest.json"
RECORDS = "requant-progress/"
SEAL = "sha256"
"""The member that has the SHA-256 of the others."""
_VERSION = 1
_MAX_BYTES = 16 << 20
"""20,000 files, and a request with thousands of names to ignore, take less."""
_MAX_BYTES_OF_RECORD = 1 << 16


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """A file of the destination that is complete and durable."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The plan that a destination belongs to, and its finished files by name."""

    plan: str
    request: Mapping[str, Any]
    files: Mapping[str, FinishedFile]


def read_manifest(destination: Store, listing: tuple[StoredFile, ...] | None = None) -> Manifest | None:
    """Return the manifest with the records so far; None where there is none.

    `listing`: the files of the destination, where the caller has it. Raises DestinationError for a manifest that
    cannot be read, StorageError.
    """
    data = destination.get(MANIFEST, _MAX_BYTES)
    if data is None:
        return None
    parsed = _parsed(data, MANIFEST)
    try:
        if parsed["version"] != _VERSION:
            raise DestinationError(f"{MANIFEST} has version {parsed['version']!r}; expected {_VERSION}")
        files = {
            name: FinishedFile(str(name), int(entry["size"]), str(entry["sha256"]))
            for name, entry in parsed["files"].items()
        }
        plan, request = str(parsed["plan"]), dict(parsed["request"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise _unreadable(MANIFEST) from None
    for file in destination.files() if listing is None else listing:
        if file.name.startswith(RECORDS) and file.name.endswith(".json"):
            record = destination.get(file.name, _MAX_BYTES_OF_RECORD)
            if record is None:
                # Another worker has moved the records into the manifest since it was read.
                return read_manifest(destination)
            found = _record(record, plan)
            if found is not None:
                files[found.name] = found
    return Manifest(plan, request, files)


def begin_manifest(destination: Store, plan: Plan) -> bool:
    """Claim the destination for this plan. False: there already is a manifest."""
    return destination.put(MANIFEST, _text(plan, {}), only_if_absent=True)


def add_record(destination: Store, plan: Plan, file: FinishedFile) -> None:
    """Write that a file is complete: after it is."""
    record = {"plan": plan.digest, **asdict(file)}
    destination.put(record_name(file.name, ".json"), json.dumps(record, ensure_ascii=False).encode())


def record_name(file: str, ending: str) -> str:
    """Return the name of what is recorded about a file: of one length, since that of the file may be the longest."""
    return f"{RECORDS}{sha256(file.encode()).hexdigest()}{ending}"


def complete_manifest(destination: Store, plan: Plan, files: Mapping[str, FinishedFile]) -> None:
    """Write the manifest with all files, and remove the records."""
    destination.put(MANIFEST, _text(plan, files))
    for file in destination.files():
        if file.name.startswith(RECORDS):
            destination.remove(file.name)


def _text(plan: Plan, files: Mapping[str, FinishedFile]) -> bytes:
    entries = {name: {"size": files[name].size, "sha256": files[name].sha256} for name in sorted(files)}
    text = {"version": _VERSION, "plan": plan.digest, "request": asdict(plan.request), "files": entries}
    return sealed(text)


def sealed(members: Mapping[str, Any]) -> bytes:
    """Return the text of a manifest: its members, and the SHA-256 of the text without that."""
    digest = sha256(json.dumps(members, indent=2, ensure_ascii=False).encode()).hexdigest()
    return (json.dumps({**members, SEAL: digest}, indent=2, ensure_ascii=False) + "\n").encode()


def _record(data: bytes, plan: str) -> FinishedFile | None:
    """Return the contents of a record; None if it belongs to another plan or cannot be read: the file is then
    rewritten."""
    try:
        parsed = parse_small_json(data, _MAX_BYTES_OF_RECORD)
        if parsed["plan"] != plan:
            return None
        return FinishedFile(str(parsed["name"]), int(parsed["size"]), str(parsed["sha256"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _parsed(data: bytes, name: str) -> dict[str, Any]:
    try:
        parsed = parse_small_json(data, _MAX_BYTES)
    except ValueError:
        raise _unreadable(name) from None
    if not isinstance(parsed, dict):
        raise _unreadable(name)
    return parsed


def _unreadable(name: str) -> DestinationError:
    return DestinationError(f"{name} of the destination is not a manifest: choose an empty destination", file=name)
