"""Reads members of an untrusted quantization_config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from requant.errors import CheckpointError, excerpt

_NOUNS: Mapping[type, str] = {
    bool: "true or false",
    int: "an integer",
    str: "a string",
    list: "a list",
    dict: "an object",
}
Value = TypeVar("Value", bool, int, str, list[Any], dict[str, Any])


def member(
    members: Mapping[str, Any], name: str, kind: type[Value], within: str = "quantization_config"
) -> Value | None:
    """Return a member, None where it is null or missing. Raises CheckpointError for one of another JSON type.

    `within`: where the members are, for the message.
    """
    value = members.get(name)
    if value is None or (isinstance(value, kind) and isinstance(value, bool) == (kind is bool)):
        return value
    raise CheckpointError(
        f"{within}.{excerpt(name)} is {excerpt(str(value))}; expected {_NOUNS[kind]}", file="config.json"
    )


def strings(members: Mapping[str, Any], name: str, within: str = "quantization_config") -> tuple[str, ...]:
    """Return a list of strings, an empty one where it is null or missing. Raises CheckpointError otherwise."""
    entries = member(members, name, list, within) or []
    for each in entries:
        if not isinstance(each, str):
            raise CheckpointError(
                f"{within}.{name} has the entry {excerpt(str(each))}; expected strings", file="config.json"
            )
    return tuple(entries)


MAX_ROWS = 4096
"""Rows that share scales are in memory together."""
WHOLE_ROWS = -1
"""The group size of columns that all share a scale."""


def block_size(members: Mapping[str, Any], name: str) -> tuple[int, int]:
    """Return [height, width] of blocks with at most MAX_ROWS rows. Raises CheckpointError for anything else."""
    stated: Any = members.get(name)
    if (
        not isinstance(stated, list)
        or len(stated) != 2
        or not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in stated)
        or stated[0] > MAX_ROWS
    ):
        raise CheckpointError(
            f"{name} is {excerpt(str(stated))}; expected two positive integers, the first at most {MAX_ROWS}: "
            "only weights with one scale per block are supported"
        )
    return stated[0], stated[1]


def group_size(stated: Any) -> int | None:
    """Return the columns of a group, None for whole rows. Raises CheckpointError for anything else."""
    if isinstance(stated, bool) or not isinstance(stated, int) or (stated < 1 and stated != WHOLE_ROWS):
        raise CheckpointError(f"group_size is {excerpt(str(stated))}; expected a positive integer, or -1")
    return None if stated == WHOLE_ROWS else stated
