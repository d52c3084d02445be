"""Rows of histograms with bins of equal width: their edges, room for more bins, and where a share of the counts is.

All rows have one stride, whatever their number of bins; what follows the last bin of a row is empty.
"""

from __future__ import annotations

import numpy as np
from numba import types

from requant.kernels.jit.jit import Kernel, kernel
from requant.kernels.jit.signature import F64, I64, In, Out, Real


def _equal_edges(numba_type: types.Type, real: type) -> Kernel:
    @kernel({Real: numba_type})
    def equal_edges(
        firsts: In[Real],  # one per row
        lasts: In[Real],  # one per row
        bins: In[I64],  # one per row; below `stride`
        stride: I64,  # from one row of edges to the next
        edges: Out[Real],  # i * ((last - first) / n) + first, the last one `last`; then infinity
    ) -> I64:
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


@kernel()
def shift_counts(
    source: In[I64],  # rows of counts
    stride: I64,  # of the source
    bins: In[I64],  # of each row
    shifts: In[I64],  # how many bins are added before the first of each row
    target_stride: I64,  # stride of the target, at least the bins and twice the shift of each row
    target: Out[I64],  # zeros
) -> None:
    """target[row, i + shift] = source[row, i]."""
    for row in range(bins.size):
        count = bins[row]
        begin = row * target_stride + shifts[row]
        target[begin : begin + count] = source[row * stride : row * stride + count]


@kernel()
def bin_of_share(
    counts: In[I64],  # rows of `stride`
    stride: I64,
    share: F64,
    found: Out[I64],  # the first bin of each row up to which there is at least the share, or `stride`
) -> None:
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
