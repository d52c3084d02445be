"""Tuning of the C library's allocator: it keeps the memory that large tensors had, up to a bound.

glibc returns each large block to the system when it is freed, and the system zeroes the next one page by page as it is
touched: about 2 us for 4 KiB, which for a tensor is more than receiving it and computing with it take together.
Requests come one after the other, so the memory is kept for the next one.

The next one may not be able to use it: blocks of other sizes leave holes too small for it. So it is returned when it
could exceed the memory budget, and when nothing large has happened for a second.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from threading import Thread
from time import monotonic

from requant_service.runtime.memory_budget import MemoryBudget

# The parameters' numbers in glibc's malloc.h. Other C libraries (musl, macOS, Windows) have no mallopt.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3

# At most so much free memory is kept at the end of the heap; larger tensors than that are rare.
_KEPT_BYTES = 256 << 20
# The heap grows in steps of this size.
_STEP_BYTES = 8 << 20
# Blocks below are taken from the heap, which is kept, and not from the system. Older glibc takes no more than 32 MiB.
_MAPPED_BYTES = (1 << 30, 32 << 20)

# The most that is kept altogether: returning a GiB takes about 30 ms.
_MAX_KEPT_BYTES = 1 << 30
# How far the memory in use may exceed the budget because of what is kept.
_SLACK_BYTES = 64 << 20
# Seconds without large work after which what is kept is returned.
_QUIET_SECONDS = 1.0

_STATM = Path("/proc/self/statm")


@cache
def _c_library() -> ctypes.CDLL | None:
    """Return the C library if its allocator can be tuned."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


def keep_memory() -> bool:
    """Set the thresholds for this process. Return whether there was an allocator to set them in."""
    library = _c_library()
    if library is None:
        return False
    library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    library.mallopt(_M_TOP_PAD, _STEP_BYTES)
    return any(library.mallopt(_M_MMAP_THRESHOLD, size) for size in _MAPPED_BYTES)


def resident_bytes() -> int:
    """Return the memory of this process (Linux)."""
    return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class KeptMemory:
    """How much free memory the allocator keeps beside what requests have reserved, at most. It trims the allocator.

    `_freed` bounds what is kept: what was given back to the budget since the last trim, but no more than the process
    has grown by.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._library = _c_library()
        self._base = 0
        self._freed = 0
        self._changed_at = 0.0
        if self._library is not None:
            budget.watch_large(self._before_large, self._after_large)

    def _before_large(self, byte_count: int) -> None:
        """Return what is kept if it could exceed the budget now that `byte_count` more are reserved."""
        self._changed_at = monotonic()
        self._base = self._base or resident_bytes()
        # Other workers keep as much.
        room = min(self._budget.budget + _SLACK_BYTES - self._budget.reserved, _MAX_KEPT_BYTES) // self._budget.workers
        if self._freed > room:
            self._freed = min(self._freed, max(0, resident_bytes() - self._base))
            if self._freed > room:
                self._trim()
                self._freed = 0

    def _after_large(self, byte_count: int) -> None:
        self._changed_at = monotonic()
        self._freed += byte_count

    def tick(self) -> None:
        """Return what is kept if nothing large has begun or ended for a second. Called several times a second.

        It takes milliseconds, and nobody waits for it, so a thread does it.
        """
        if self._freed and monotonic() - self._changed_at > _QUIET_SECONDS:
            self._freed = 0
            Thread(target=self._trim, name="trim", daemon=True).start()

    def _trim(self) -> None:
        """Return all free memory to the system."""
        assert self._library is not None
        self._library.malloc_trim(0)
