"""What is awaited in the place of something that was done at once: a coroutine would only cost time."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final


class _AtOnce:
    """May be awaited any number of times. Nothing else runs meanwhile."""

    def __await__(self) -> Generator[None]:
        return
        yield


AT_ONCE: Final = _AtOnce()
