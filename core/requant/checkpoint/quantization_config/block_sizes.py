"""The sizes of blocks that a config.json may state."""

from __future__ import annotations

from typing import Any

from requant.errors import CheckpointError, excerpt

MAX_ROWS = 4096
"""Rows that share scales are in memory together."""


def check_block(stated: Any, member: str) -> None:
    """Raise CheckpointError unless the value is [height, width] of blocks with at most MAX_ROWS rows."""
    if (
        not isinstance(stated, list)
        or len(stated) != 2
        or not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in stated)
        or stated[0] > MAX_ROWS
    ):
        raise CheckpointError(
            f"{member} is {excerpt(str(stated))}; expected two positive integers, the first at most {MAX_ROWS}: "
            "only weights with one scale per block are supported"
        )
