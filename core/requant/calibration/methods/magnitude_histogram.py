"""onnxruntime's histogram of magnitudes: bins of equal width between the smallest and the largest |x|.

A later tensor with a larger magnitude adds bins of the width of the first one, up to the one that holds it, by
numpy.arange; one may come after that. Magnitudes below the first edge are not counted. A first tensor of one magnitude
m stands for m - 0.5 to m + 0.5. Source: onnxruntime 1.31 calibrate.py collect_absolute_value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.calibration.methods.method import Array
from requant.calibration.methods.observed import Rows
from requant.calibration.methods.value_histogram import check_growth, equal_edges, refuse_edges
from requant.kernels.statistics.histogram import HISTOGRAM, HISTOGRAM_BETWEEN


@dataclass(slots=True)
class MagnitudeHistogram:
    """One histogram for each row. `counts` and `edges` have as many columns as the longest needs.

    `first` is what messages count the rows from.
    """

    first: int
    bins: Array
    counts: Array
    edges: Array
    minimums: Array
    maximums: Array

    @classmethod
    def of(cls, first: int, rows: Rows, bins: int) -> MagnitudeHistogram:
        """Return the histogram of the first tensor. Errors as of `add`."""
        magnitudes = Rows(np.abs(rows.values), rows.offsets)
        firsts, lasts = magnitudes.extremes()
        half = np.where(firsts == lasts, firsts.dtype.type(0.5), firsts.dtype.type(0))
        firsts, lasts = firsts - half, lasts + half
        widths = np.full(firsts.size, bins)
        counts = np.zeros((firsts.size, bins), np.int64)
        made = cls(first, widths, counts, equal_edges(first, firsts, lasts, widths), *rows.extremes())
        HISTOGRAM[firsts.dtype.str](magnitudes.values, rows.offsets, firsts, lasts, made.bins, bins, counts.reshape(-1))
        return made

    def add(self, rows: Rows) -> None:
        """Add another tensor.

        Raise PreconditionError where numpy refuses: edges that descend. Raise LimitError when a histogram would have
        more than MAX_GROWN_BINS bins.
        """
        magnitudes = Rows(np.abs(rows.values), rows.offsets)
        edges = self._grown_edges(magnitudes.extremes()[1])
        HISTOGRAM_BETWEEN[magnitudes.values.dtype.str](
            magnitudes.values,
            rows.offsets,
            edges.reshape(-1),
            self.bins,
            self.counts.shape[1],
            self.counts.reshape(-1),
        )
        self.edges = edges.astype(self.edges.dtype)
        lows, highs = rows.extremes()
        self.minimums = np.minimum(self.minimums, lows)
        self.maximums = np.maximum(self.maximums, highs)

    def _grown_edges(self, largest: Array) -> Array:
        """Make room for magnitudes up to `largest` in each row, and return the edges to count between, as f64.

        numpy.arange gives f64 even for f32. The edges are rounded to the data's precision after the counting.
        """
        last = self.edges[np.arange(self.bins.size), self.bins]
        added: dict[int, Array] = {}
        for row in np.flatnonzero(largest > last).tolist():
            width, top = self.edges[row, 1] - self.edges[row, 0], largest[row]
            with np.errstate(all="ignore"):
                check_growth(self.first + row, self.bins[row] + np.array([(top - last[row]) / width]))
            added[row] = np.arange(last[row] + width, top + width, width)
        bins = self.bins.copy()
        for row, new in added.items():
            bins[row] += new.size
        columns = int(bins.max())
        counts = np.zeros((bins.size, columns), np.int64)
        counts[:, : self.counts.shape[1]] = self.counts
        edges = np.full((bins.size, columns + 1), np.inf)
        edges[:, : self.edges.shape[1]] = self.edges
        for row, new in added.items():
            edges[row, self.bins[row] + 1 : bins[row] + 1] = new
        refuse_edges(self.first, np.logical_or.reduce(edges[:, :-1] > edges[:, 1:], axis=1))
        self.bins, self.counts = bins, counts
        return edges
