"""The memory's limit: loops that read and write what a conversion does, and compute nothing."""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

from benchmarks.kernels.peers import Array, Peer


@cache
def _loop(read: str, written: str) -> Any:
    signature = types.void(
        types.Array(numba.from_dtype(np.dtype(read)), 1, "C", readonly=True),
        types.Array(numba.from_dtype(np.dtype(written)), 1, "C"),
    )

    @numba.njit([signature], nogil=True)
    def copy(source: Any, target: Any) -> None:
        for i in range(target.size):
            target[i] = source[i]

    return copy


def traffic(source: Array, target: Array) -> Peer:
    """Read as many bytes of `source` for each element of `target` as the conversion does, and write their low part."""
    read = source.view(f"<u{source.nbytes // target.size}")
    written = np.zeros(target.size, f"<u{target.itemsize}")
    loop = _loop(read.dtype.str, written.dtype.str)
    return Peer(lambda: loop(read, written), lambda: written)
