"""How far long work is: told to whoever has asked for it in the context of the work."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar


def _nobody(done: int, total: int) -> None:
    """Nobody has asked."""


progress_report: ContextVar[Callable[[int, int], None]] = ContextVar("progress_report", default=_nobody)
"""Is called with how much is done, and of how much."""
