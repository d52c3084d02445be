"""Reads a request back from JSON: that of a manifest, or of a plan file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from requant.checkpoint.plan.model import Direction, NotFinite, Request


def request_of(members: Mapping[str, Any]) -> Request:
    """Return the request that `dataclasses.asdict` made `members` of.

    Raises KeyError, TypeError or ValueError for anything else.
    """
    if set(members) != {field.name for field in fields(Request)}:
        raise KeyError("request")
    return Request(
        direction=Direction(members["direction"]),
        scheme=None if members["scheme"] is None else text(members["scheme"]),
        profile=text(members["profile"]),
        ignore=_texts(members["ignore"]),
        targets=_texts(members["targets"]),
        not_finite=NotFinite(members["not_finite"]),
        dtype=None if members["dtype"] is None else text(members["dtype"]),
    )


def text(value: object) -> str:
    """Return a string. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    return tuple(map(text, value))
