"""onnxruntime's histogram of values: bins of equal width between -T and T, with T the largest magnitude.

A later tensor with a larger T adds h whole bins of the old width on either side; the histogram of the new tensor is
made with the new bins, and the old counts are added in their middle:

    width = 2 * T / n        h = floor((T' - T) / width) + 1        T' = h * width + T        n' = n + 2 * h

Every step is in the lanes of the data. T = 0 stands for -0.5 to 0.5. Source: onnxruntime 1.31 calibrate.py
collect_value and merge_histogram, with numpy's histogram.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.calibration.methods.method import MAX_GROWN_BINS, Array
from requant.calibration.methods.observed import Rows
from requant.errors import LimitError, PreconditionError
from requant.kernels.statistics.histogram import HISTOGRAM
from requant.kernels.statistics.histogram_rows import EQUAL_EDGES, shift_counts


@dataclass(slots=True)
class ValueHistogram:
    """One histogram for each row. `counts` and `edges` have as many columns as the longest needs.

    `first` is what messages count the rows from.
    """

    first: int
    bins: Array
    counts: Array
    edges: Array
    thresholds: Array
    minimums: Array
    maximums: Array

    @classmethod
    def of(cls, first: int, rows: Rows, bins: int) -> ValueHistogram:
        """Return the histogram of the first tensor. Errors as of `add`."""
        lows, highs = rows.extremes()
        thresholds = np.maximum(np.abs(lows), np.abs(highs))
        nothing = np.zeros((lows.size, bins), np.int64)
        made = cls(first, np.full(lows.size, bins), nothing, nothing, thresholds, lows, highs)
        made._count(rows)
        return made

    def add(self, rows: Rows) -> None:
        """Add another tensor.

        Raise PreconditionError where numpy refuses: edges that do not ascend, because the floats between them are too
        few or their distance overflows. Raise LimitError when a histogram would have more than MAX_GROWN_BINS bins.
        """
        lows, highs = rows.extremes()
        self._grow(np.maximum(np.abs(lows), np.abs(highs)))
        self._count(rows)
        self.minimums = np.minimum(self.minimums, lows)
        self.maximums = np.maximum(self.maximums, highs)

    def _grow(self, thresholds: Array) -> None:
        old, bins = self.thresholds, self.bins
        real = old.dtype.type
        grown = (thresholds > old) & (old != 0)
        with np.errstate(all="ignore"):
            width = real(2) * old / bins.astype(old.dtype)
            added = np.where(grown, (thresholds - old) // width + real(1), real(0))
        check_growth(self.first, bins + 2.0 * added)
        self.thresholds = np.where(grown, added * width + old, np.maximum(old, thresholds))
        shifts = added.astype(np.int64)
        self.bins = bins + 2 * shifts
        if shifts.any():
            columns = int(self.bins.max())
            widened = np.zeros((bins.size, columns), np.int64)
            shift_counts(self.counts.reshape(-1), self.counts.shape[1], bins, shifts, columns, widened.reshape(-1))
            self.counts = widened

    def _count(self, rows: Rows) -> None:
        half = self.thresholds.dtype.type(0.5)
        reach = np.where(self.thresholds == 0, half, self.thresholds)
        self.edges = equal_edges(self.first, -reach, reach, self.bins)
        HISTOGRAM[reach.dtype.str](
            rows.values, rows.offsets, -reach, reach, self.bins, self.counts.shape[1], self.counts.reshape(-1)
        )


def equal_edges(row: int, firsts: Array, lasts: Array, bins: Array) -> Array:
    """Return the edges of `bins` bins of equal width in each row, in the lanes of `firsts`; infinity after the last.

        edge(i) = i * ((last - first) / n) + first        edge(n) = last

    Raise PreconditionError where they do not ascend. `row` is what its message counts the rows from.
    """
    edges = np.empty((bins.size, int(bins.max()) + 1), firsts.dtype)
    wrong = EQUAL_EDGES[firsts.dtype.str](firsts, lasts, bins, edges.shape[1], edges.reshape(-1))
    refuse_edges(row, np.arange(bins.size) == wrong)
    return edges


def refuse_edges(row: int, wrong: Array) -> None:
    """Raise PreconditionError if there is a histogram with `wrong` edges. `row` is the number of the first."""
    if wrong.any():
        raise PreconditionError(
            f"range {row + int(np.argmax(wrong))} has no histogram: its numbers are too close to each other, or too "
            "far apart, for that many bins in their precision"
        )


def check_growth(row: int, bins: Array) -> None:
    """Raise LimitError if there is a histogram with more than MAX_GROWN_BINS bins, or with infinitely many, or NaN."""
    if not (bins <= MAX_GROWN_BINS).all():
        which = row + int(np.argmax(~(bins <= MAX_GROWN_BINS)))
        raise LimitError(
            f"the histogram of range {which} would grow to more than {MAX_GROWN_BINS} bins: a later tensor has a "
            "far larger range than the first",
            limit=MAX_GROWN_BINS,
        )
