"""Histograms of many rows, a few at a time, so that they never need much memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from requant.calibration.methods.magnitude_histogram import MagnitudeHistogram
from requant.calibration.methods.method import Array, FoundRanges, limit_work
from requant.calibration.methods.observed import Observed, Rows
from requant.calibration.methods.value_histogram import ValueHistogram
from requant.errors.cancellation import check_cancelled

Histogram = TypeVar("Histogram", ValueHistogram, MagnitudeHistogram)

# Counts at a time. Histograms grow from there, each to 32 times as many and more.
_MAX_COUNTS = 1 << 17
# Counts that are made or moved in all, for all rows and tensors: about a second; and what one more row of
# magnitudes costs that grows.
_MAX_STEPS = 1 << 28
_STEPS_OF_ROW = 1 << 12


def ranges_of_histograms(
    observed: Observed,
    kind: type[Histogram],
    bins: int,
    choose: Callable[[Histogram], tuple[Array, Array]],
) -> FoundRanges:
    """Make a histogram of each parameter's elements in all tensors, and let `choose` find their ranges.

    NaN is left out and counted, but a first tensor for magnitudes must have none. Raise PreconditionError for
    infinities, and for a parameter that has only NaN in a tensor.
    """
    if kind is MagnitudeHistogram:
        observed.refuse_where(0, np.isnan, "NaN; this method does not allow it in the first tensor")
    batches, missing = zip(*(observed.rows(index) for index in range(len(observed.arrays))), strict=True)
    found = [choose(histogram) for histogram in _histograms(observed.parameters, list(batches), kind, bins)]
    lows, highs = (np.concatenate(ends).astype(np.float64) for ends in zip(*found, strict=True))
    return FoundRanges(lows, highs, sum(missing))


def _histograms(parameters: int, batches: list[Rows], kind: type[Histogram], bins: int) -> Iterator[Histogram]:
    at_once = max(1, _MAX_COUNTS // (bins + 1))
    steps = 0
    for begin in range(0, parameters, at_once):
        check_cancelled()
        end = min(begin + at_once, parameters)
        histogram = kind.of(begin, batches[0].part(begin, end), bins)
        steps += histogram.counts.size
        for batch in batches[1:]:
            check_cancelled()
            limit_work(steps, _MAX_STEPS, "bins of all ranges in all tensors")
            before = histogram.bins
            histogram.add(batch.part(begin, end))
            steps += histogram.counts.size
            if kind is MagnitudeHistogram:
                steps += _STEPS_OF_ROW * int(np.count_nonzero(histogram.bins != before))
        yield histogram
