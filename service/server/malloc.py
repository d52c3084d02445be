"""The C library's allocator, told to keep the memory that large tensors had.

glibc gives each large block back to the system when it is freed, and the system hands out and zeroes the next one page
by page as it is touched: about 2 us for 4 KiB, which for a tensor is more than receiving it and computing with it take
together. Requests come one after the other, so the memory is kept for the next one.
"""

from __future__ import annotations

import ctypes
import sys

# The parameters' numbers in glibc's malloc.h. Other C libraries (musl, macOS, Windows) have no mallopt.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3

# At most so much free memory is kept; larger tensors than that are rare.
_KEPT_BYTES = 256 << 20
# The heap grows in steps of this size.
_STEP_BYTES = 8 << 20
# Blocks below are taken from the heap, which is kept, and not from the system. Older glibc takes no more than 32 MiB.
_MAPPED_BYTES = (1 << 30, 32 << 20)


def keep_memory() -> bool:
    """Set the thresholds for this process. Return whether there was an allocator to set them in."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_TOP_PAD, _STEP_BYTES)
    return any(mallopt(_M_MMAP_THRESHOLD, size) for size in _MAPPED_BYTES)
