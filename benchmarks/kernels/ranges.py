"""The pass that finds a tensor's smallest and largest value, beside torch.aminmax and numpy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.kernels.conversion import Array
from benchmarks.kernels.peers import Peer, torch
from benchmarks.kernels.row import Row, differing_bytes
from benchmarks.measure import compare
from core.kernels.reduce import MINIMUM_MAXIMUM

NAME = "minimum and maximum"
_SIZES = (1_000, 100_000, 1_000_000, 10_000_000)
_EXTREMES = np.iinfo(np.int32)


def _ours(source: Array) -> Peer:
    bits, keys = source.view(np.int32), np.empty(2, np.int32)

    def call() -> None:
        keys[:] = _EXTREMES.max, _EXTREMES.min
        MINIMUM_MAXIMUM[32, False](bits, 0, bits.size, 1, bits.size, 1, keys[:1], keys[1:])

    # A key is its own inverse.
    return Peer(call, lambda: (keys ^ ((keys >> 31) & 0x7FFFFFFF)).view(np.uint8))


def _numpy(source: Array) -> Peer:
    return Peer(
        lambda: (source.min(), source.max()), lambda: np.array([source.min(), source.max()], "<f4").view(np.uint8)
    )


def range_rows(group: str, huge: bool) -> Iterator[Row]:
    """Measure the pass at each size."""
    for size in _SIZES:
        source = np.random.default_rng(9).standard_normal(size, np.float32)
        contenders = {"ours": _ours(source), "numpy": _numpy(source)}
        if torch.INSTALLED:
            contenders["torch"] = torch.aminmax(source)
        differing = differing_bytes(f"{NAME}, {size} elements", contenders, frozenset(contenders))
        measured = compare({name: contender.call for name, contender in contenders.items()})
        yield Row(group, NAME, size, size, source.nbytes, measured.seconds, differing, measured.foreign)
