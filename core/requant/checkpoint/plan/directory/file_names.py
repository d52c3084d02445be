"""The names of the files that a conversion writes: those that every destination can have."""

from __future__ import annotations

from requant.checkpoint.plan.model import Plan
from requant.checkpoint.plan.refusals import Refusals
from requant.errors import excerpt

MAX_BYTES = 250
"""File systems take 255; a file that is being written is `<name>.part`."""


def check_file_names(plan: Plan) -> None:
    """Raise CheckpointError for names that are not UTF-8, which manifests and object stores need, or are too long."""
    refusals = Refusals()
    for name in (*(task.output for task in plan.tasks), *(file.name for file in plan.carried)):
        try:
            longest = max(len(part.encode()) for part in name.split("/"))
        except UnicodeEncodeError:
            refusals.add(f"the file name '{excerpt(name)}' is not UTF-8: rename or remove the file")
            continue
        if longest > MAX_BYTES:
            refusals.add(
                f"the file name '{excerpt(name)}' has {longest} bytes, but at most {MAX_BYTES} can be written: rename "
                "or remove the file"
            )
    refusals.raise_any()
