"""What is wrong with a checkpoint, and where."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong, and where. `index`: of the first element of the stored tensor, along its axes."""

    detail: str
    file: str | None = None
    tensor: str | None = None
    index: tuple[int, ...] | None = None
