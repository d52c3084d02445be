"""Rows of histograms with bins of equal width: their edges, room for more bins, and where a share of the counts is.

All rows have one stride, whatever their number of bins; what follows the last bin of a row is empty.
"""

from __future__ import annotations

import numpy as np
from numba import types

from requant.kernels.jit.jit import Array, Kernel, Number, kernel, readable, writable


def _equal_edges(numba_type: types.Type, real: type) -> Kernel:
    @kernel(
        (
            readable(numba_type),  # firsts, one per row
            readable(numba_type),  # lasts, one per row
            readable(types.int64),  # bins, one per row; below `stride`
            types.int64,  # stride: from one row of edges to the next
            writable(numba_type),  # edges: i * ((last - first) / n) + first, the last one `last`; then infinity
        ),
        returns=types.int64,
    )
    def equal_edges(firsts: Array, lasts: Array, bins: Array, stride: Number, edges: Array) -> Number:
        """Return the first row whose edges do not ascend, or the number of rows."""
        wrong = bins.size
        for row in range(bins.size):
            first = firsts[row]
            count = bins[row]
            step = real(real(lasts[row] - first) / real(count))
            found = edges[row * stride : (row + 1) * stride]
            for i in range(count):
                found[i] = real(real(i) * step) + first
            found[count] = lasts[row]
            found[count + 1 :] = np.inf
            ascending = True
            for i in range(count):
                ascending &= found[i] < found[i + 1]
            if not ascending:
                wrong = min(wrong, row)
        return wrong

    return equal_edges


EQUAL_EDGES: dict[str, Kernel] = {
    "<f4": _equal_edges(types.float32, np.float32),
    "<f8": _equal_edges(types.float64, np.float64),
}
"""The kernel for each dtype of lanes."""


@kernel(
    (
        readable(types.int64),  # source: rows of counts
        types.int64,  # stride of the source
        readable(types.int64),  # bins of each row
        readable(types.int64),  # shifts: how many bins are added before the first of each row
        types.int64,  # stride of the target, at least the bins and twice the shift of each row
        writable(types.int64),  # target: zeros
    )
)
def shift_counts(
    source: Array, stride: Number, bins: Array, shifts: Array, target_stride: Number, target: Array
) -> None:
    """target[row, i + shift] = source[row, i]."""
    for row in range(bins.size):
        count = bins[row]
        begin = row * target_stride + shifts[row]
        target[begin : begin + count] = source[row * stride : row * stride + count]


@kernel(
    (
        readable(types.int64),  # counts: rows of `stride`
        types.int64,  # stride
        types.float64,  # share
        writable(types.int64),  # found: the first bin of each row up to which there is at least the share, or `stride`
    )
)
def bin_of_share(counts: Array, stride: Number, share: Number, found: Array) -> None:
    """Add counts / total, each rounded to f64, in their order, as numpy.cumsum does."""
    for row in range(found.size):
        tally = counts[row * stride : (row + 1) * stride]
        total = np.int64(0)
        for i in range(stride):
            total += tally[i]
        cumulative = 0.0
        index = stride
        for i in range(stride):
            # An empty bin adds nothing, and a division takes long.
            if tally[i] != 0:
                cumulative += np.float64(tally[i]) / np.float64(total)
            if not cumulative < share:
                index = i
                break
        found[row] = index
