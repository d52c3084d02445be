"""Reads members of a quantization_config, which anyone may have written."""

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
    found = members.get(name)
    if found is None or (isinstance(found, kind) and isinstance(found, bool) == (kind is bool)):
        return found
    raise CheckpointError(
        f"{within}.{excerpt(name)} is {excerpt(str(found))}; expected {_NOUNS[kind]}", file="config.json"
    )


def strings(members: Mapping[str, Any], name: str, within: str = "quantization_config") -> tuple[str, ...]:
    """Return a list of strings, an empty one where it is null or missing. Raises CheckpointError otherwise."""
    found = member(members, name, list, within) or []
    for each in found:
        if not isinstance(each, str):
            raise CheckpointError(
                f"{within}.{name} has the entry {excerpt(str(each))}; expected strings", file="config.json"
            )
    return tuple(found)
