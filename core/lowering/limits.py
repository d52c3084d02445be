"""What a module may cost. The service fills it from its settings."""

from __future__ import annotations

import time
from dataclasses import dataclass

from core.errors import DeadlineError


@dataclass(frozen=True, slots=True)
class ModuleLimits:
    """Limits of one request: characters and operations of a module, elements of its constants, bytes, seconds."""

    characters: int = 1 << 20
    operations: int = 10_000
    nesting: int = 64
    constant_elements: int = 1 << 20
    evaluation_bytes: int = 256 << 20
    seconds: float = 10.0


class Deadline:
    """A moment after which work stops. It is asked between steps, each of which is bounded by itself."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Raise DeadlineError when the moment has passed."""
        if time.monotonic() > self._end:
            raise DeadlineError(
                f"the module took more than {self._seconds:g} seconds; that is the limit", limit=int(self._seconds)
            )
