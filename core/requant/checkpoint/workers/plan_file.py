"""The input of a worker: the request, source, destination, and the digest of the resulting plan."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

from requant.checkpoint.plan.model import Plan, Request, request_of, text
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.storage.location import open_store
from requant.checkpoint.storage.store import Store
from requant.errors import CheckpointError, ParameterError, SourceChangedError, StorageError, UnknownNameError, excerpt

VERSION = 1


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan by what it follows from. `tasks`: their number, for who chooses the number of workers."""

    source: str
    destination: str
    request: Request
    digest: str
    tasks: int

    def to_json(self) -> bytes:
        """Return the file's content."""
        return (json.dumps({"version": VERSION, **asdict(self)}, indent=2) + "\n").encode()

    def plan(self, source: Store) -> Plan:
        """Return the plan, made again from the headers of the source.

        Raises SourceChangedError where another plan follows from it now; otherwise as `plan_conversion`.
        """
        try:
            plan = plan_conversion(source, self.request)
        except (UnknownNameError, ParameterError) as error:
            # Nothing of it was given by the caller.
            raise CheckpointError(f"the request in the plan file cannot be planned: {error.detail}") from None
        if plan.digest != self.digest:
            raise SourceChangedError(
                f"the plan for {self.source} is no longer that of the plan file: the source has changed, or this is "
                "another version of Requant. Make a new plan file, and start with an empty destination"
            )
        return plan


def write_plan_file(location: str, file: PlanFile) -> None:
    """Write a plan file to a path or the URL of an object. Raises StorageError."""
    place, name = _place(location)
    place.put(name, file.to_json())


def read_plan_file(location: str) -> PlanFile:
    """Return the plan file at a path or the URL of an object. Raises CheckpointError, StorageError."""
    place, name = _place(location)
    data = place.get(name)
    if data is None:
        raise StorageError(f"{location} does not exist: `requant checkpoint plan --output` writes plan files")
    return parse_plan_file(data)


def _place(location: str) -> tuple[Store, str]:
    folder, name = location.rsplit("/", 1) if "://" in location else os.path.split(location)
    return open_store(folder or os.curdir), name


def plan_file_of(plan: Plan, source: Store, destination: Store) -> PlanFile:
    """Return the file of a plan."""
    return PlanFile(source.url, destination.url, plan.request, plan.digest, len(plan.tasks))


def parse_plan_file(data: bytes) -> PlanFile:
    """Return what `PlanFile.to_json` wrote. Raises CheckpointError."""
    try:
        parsed = json.loads(data)
        if parsed["version"] != VERSION:
            raise CheckpointError(
                f"the plan file is of version {excerpt(str(parsed['version']))}; expected {VERSION}: make a new one"
            )
        return PlanFile(
            text(parsed["source"]),
            text(parsed["destination"]),
            request_of(parsed["request"]),
            text(parsed["digest"]),
            int(parsed["tasks"]),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError("not a plan file as written by `requant checkpoint plan --output`") from error
