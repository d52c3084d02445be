"""A part of the results: Markdown for people, and what it was made from for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Section:
    """`data` is what JSON can hold. `failures` say what must not be so, one line each."""

    title: str
    markdown: str
    data: Any
    failures: tuple[str, ...] = ()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])
