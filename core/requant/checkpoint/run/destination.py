"""Checks whether a plan may be written to a destination, and which outputs are already there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from requant.checkpoint.plan.model import Plan
from requant.checkpoint.run.manifest import MANIFEST, RECORDS, FinishedFile, begin_manifest, read_manifest
from requant.checkpoint.storage.local_writer import PART
from requant.checkpoint.storage.store import Store
from requant.errors import DestinationError, StorageError, excerpt

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
