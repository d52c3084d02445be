"""The passes that calibration makes: the smallest and the largest value, and a histogram between them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.kernels.conversion import Array
from benchmarks.kernels.peers import Peer, torch
from benchmarks.kernels.row import Row, differing_bytes
from benchmarks.measure import compare
from requant.kernels.statistics.histogram import HISTOGRAM
from requant.kernels.statistics.reduce import MINIMUM_MAXIMUM

NAME = "minimum and maximum"
_BINS = 2048
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


def _histogram(source: Array) -> Peer:
    counts = np.zeros(_BINS, np.int64)
    rows = np.array([0, source.size]), *(np.array([each]) for each in (source.min(), source.max())), np.array([_BINS])

    def call() -> None:
        counts[:] = 0
        HISTOGRAM["<f4"](source, *rows, _BINS, counts)

    return Peer(call, lambda: counts.view(np.uint8))


def _numpy_histogram(source: Array) -> Peer:
    ends = source.min(), source.max()
    return Peer(lambda: np.histogram(source, _BINS, ends), lambda: np.histogram(source, _BINS, ends)[0].view(np.uint8))


def range_rows(group: str, huge: bool) -> Iterator[Row]:
    """Measure the pass at each size."""
    for size in _SIZES:
        source = np.random.default_rng(9).standard_normal(size, np.float32)
        extremes = {"ours": _ours(source), "numpy": _numpy(source)}
        if torch.INSTALLED:
            extremes["torch"] = torch.aminmax(source)
        histograms = {"ours": _histogram(source), "numpy": _numpy_histogram(source)}
        for name, contenders in ((NAME, extremes), (f"histogram of {_BINS:,} bins", histograms)):
            differing = differing_bytes(f"{name}, {size} elements", contenders, frozenset(contenders))
            measured = compare({peer: contender.call for peer, contender in contenders.items()})
            yield Row(group, name, size, size, source.nbytes, measured.seconds, differing, measured.foreign)
