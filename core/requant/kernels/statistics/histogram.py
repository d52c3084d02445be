"""Histograms with bins of equal width, as numpy.histogram counts them.

`n` bins lie between `first` and `last`. In the precision of the data, each step rounded:

    width = last - first        step = width / n        edge(i) = i * step + first, and edge(n) = last
    bin(x) = trunc((x - first) / width * n), then one lower if x < edge(bin), one higher if x >= edge(bin + 1)

The last bin has its upper edge, the others have not; x outside of `first` to `last` is not counted. Edges have to
ascend. Counts are integers, so any order and any pieces give the same.
Source: numpy 2.4 lib/_histograms_impl.py.

Rows of them have one stride, whatever their number of bins; what follows the last bin of a row is empty.
"""

from __future__ import annotations

import numpy as np
from numba import types

from requant.kernels.jit.jit import Kernel, kernel
from requant.kernels.jit.signature import F64, I64, In, Out, Real

_PIECE = 1024


def _histogram(numba_type: types.Type, real: type) -> Kernel:
    @kernel({Real: numba_type})
    def histogram(
        values: In[Real],  # one row after the other
        offsets: In[I64],  # where each row begins, and where the last ends
        firsts: In[Real],  # one per row
        lasts: In[Real],  # one per row; above the first
        bins: In[I64],  # one per row; at most `stride`
        stride: I64,  # from one row of counts to the next
        counts: Out[I64],  # added to
    ) -> None:
        found = np.empty(_PIECE, np.int32)
        for row in range(bins.size):
            first = firsts[row]
            last = lasts[row]
            top = np.int32(bins[row] - 1)
            highest = real(top)
            count = real(bins[row])
            width = real(last - first)
            step = real(width / count)
            tally = counts[row * stride : row * stride + bins[row]]
            for begin in range(offsets[row], offsets[row + 1], _PIECE):
                piece = values[begin : min(begin + _PIECE, offsets[row + 1])]
                for i in range(piece.size):
                    x = piece[i]
                    inside = (x >= first) & (x <= last)
                    x = x if inside else first
                    # Clamped before it is converted. NaN (0 / 0, or infinity / infinity) fails the comparison and
                    # becomes `top`; negative it is not, because x >= first.
                    place = real(real(real(x - first) / width) * count)
                    index = np.int32(place if place < highest else highest)
                    low = real(real(index) * step) + first
                    high = real(real(index + np.int32(1)) * step) + first
                    index = np.int32(index - np.int32(x < low))
                    index = np.int32(index + np.int32((x >= high) & (index != top)))
                    found[i] = index if inside else np.int32(-1)
                for i in range(piece.size):
                    # 0 to top, or -1: one bin up only from below `top`, one bin down at most from 0.
                    if found[i] >= 0:
                        tally[found[i]] += 1

    return histogram


HISTOGRAM: dict[str, Kernel] = {
    "<f4": _histogram(types.float32, np.float32),
    "<f8": _histogram(types.float64, np.float64),
}
"""The kernel for each dtype that is computed in."""


def _histogram_between(numba_type: types.Type) -> Kernel:
    @kernel({Real: numba_type})
    def histogram_between(
        values: In[Real],  # one row after the other
        offsets: In[I64],  # where each row begins, and where the last ends
        edges: In[F64],  # row after row, each one more than its bins; ascending
        bins: In[I64],  # one per row; at most `stride`
        stride: I64,  # from one row of counts to the next; edges have one more
        counts: Out[I64],  # added to
    ) -> None:
        for row in range(bins.size):
            count = bins[row]
            bounds = edges[row * (stride + 1) : row * (stride + 1) + count + 1]
            tally = counts[row * stride : row * stride + count]
            for x in values[offsets[row] : offsets[row + 1]]:
                if not bounds[0] <= x <= bounds[count]:
                    continue
                # The last bin with a lower edge that is not above x: 0 <= low < high <= count, whatever the edges are.
                low = 0
                high = count
                while high - low > 1:
                    middle = (low + high) // 2
                    if bounds[middle] <= x:
                        low = middle
                    else:
                        high = middle
                tally[low] += 1

    return histogram_between


HISTOGRAM_BETWEEN: dict[str, Kernel] = {
    "<f4": _histogram_between(types.float32),
    "<f8": _histogram_between(types.float64),
}
"""Histograms between any ascending edges, as numpy.histogram counts them: the last bin has its upper edge."""


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
"""The kernel for each dtype that is computed in."""


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
