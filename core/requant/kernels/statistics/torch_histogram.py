"""torch's HistogramObserver: its histograms, and its search for the range with the smallest error.

Every step is f32 unless it says otherwise, in the order of torch's operators on x86; the sums are torch's, on vectors
of eight. Source: torch 2.13 torch/ao/quantization/observer.py, ATen HistogramKernel.cpp and SumKernel.cpp.
"""

from __future__ import annotations

import numpy as np

from requant.kernels.jit.jit import Array, Number, device, kernel
from requant.kernels.jit.signature import F32, I64, In, Out
from requant.kernels.scalar.rounding import fused_multiply_add, round_down

_F32 = np.float32
_HALF, _ONE, _THREE = np.float32(0.5), np.float32(1.0), np.float32(3.0)
_STEP = 1e-5

# torch.sum keeps four running vectors, whose chunks of at least 2^4 are added up on four levels.
_VECTOR = 8
_CHAINS = 4
_LEVELS = 4


@kernel()
def torch_histc(
    values: In[F32],  # no NaN
    first: F32,
    last: F32,  # last; above first
    counts: Out[F32],  # one per bin, added to
) -> None:
    """Count in bins of equal width: bin(x) = trunc((x - first) * n / (last - first)), the last edge in the last bin.

    Values outside of first to last are not counted. f32 counts stay at 2^24. Where the product overflows, torch's bin
    is undefined; here it is the last.
    """
    width = _F32(last - first)
    bins = _F32(counts.size)
    top = _F32(counts.size - 1)
    for x in values:
        if first <= x <= last:
            place = _F32(_F32(_F32(x - first) * bins) / width)
            # Not negative, because x >= first; NaN (0 / 0) and infinity fail the comparison and become `top`.
            counts[np.int64(place if place < top else top)] += _ONE


@kernel()
def torch_stretch(
    counts: In[F32],  # one per bin
    old_first: F32,  # old_first
    old_last: F32,  # old_last; above old_first
    first: F32,  # at most old_first
    last: F32,  # at least old_last
    target: Out[F32],  # one per bin, zeros
) -> None:
    """Move a histogram to a wider range: each bin in 16 equal parts, each to the bin that its middle lies in."""
    bins = counts.size
    parts = 16 * bins
    old_step = _F32(_F32(old_last - old_first) / _F32(parts))
    half_part = _F32(_HALF * old_step)
    step = _F32(_F32(last - first) / _F32(bins))
    bin_ = 0
    for part in range(parts):
        middle = _F32(_linspace(part, parts + 1, old_first, old_last, old_step) + half_part)
        # Middles ascend, and so do edges.
        while bin_ < bins - 1 and _linspace(bin_ + 1, bins + 1, first, last, step) <= middle:
            bin_ += 1
        # At most bins - 1, even where middles or edges are NaN: the comparison fails.
        target[bin_] += _F32(counts[part // 16] / _F32(16.0))


@device
def _linspace(index: Number, count: Number, first: Number, last: Number, step: Number) -> Number:
    """Entry `index` of `count` numbers from first to last: counted from the nearer end, with one rounding."""
    if index < count // 2:
        return fused_multiply_add(step, _F32(index), first)
    return fused_multiply_add(-step, _F32(count - index - 1), last)


@kernel()
def torch_linspace(
    first: F32,
    last: F32,
    target: Out[F32],  # at least two numbers
) -> None:
    """Fill `target` with numbers from first to last at equal distances."""
    step = _F32(_F32(last - first) / _F32(target.size - 1))
    for index in range(target.size):
        target[index] = _linspace(index, target.size, first, last, step)


@device
def _sum_rows(values: Array, width: Number) -> Number:
    """Sum all whole rows of `width` numbers, each column apart, into the first columns of an array."""
    rows = values.size // width
    lengths = rows // _CHAINS
    power = max(4, _ceiling_log_2(lengths) // _LEVELS)
    chunk = 1 << power
    levels = np.zeros(_LEVELS * _CHAINS * width, np.float32)
    row_size = _CHAINS * width
    done = 0
    while done + chunk <= lengths:
        for index in range(done, done + chunk):
            for column in range(row_size):
                levels[column] += values[index * row_size + column]
        done += chunk
        for level in range(1, _LEVELS):
            for column in range(row_size):
                levels[level * row_size + column] += levels[(level - 1) * row_size + column]
                levels[(level - 1) * row_size + column] = _F32(0.0)
            if done & ((chunk - 1) << (level * power)):
                break
    for index in range(done, lengths):
        for column in range(row_size):
            levels[column] += values[index * row_size + column]
    for level in range(1, _LEVELS):
        for column in range(row_size):
            levels[column] += levels[level * row_size + column]
    for row in range(lengths * _CHAINS, rows):
        for column in range(width):
            levels[column] += values[row * width + column]
    for chain in range(1, _CHAINS):
        for column in range(width):
            levels[column] += levels[chain * width + column]
    return levels[:width]


@device
def _ceiling_log_2(value: Number) -> Number:
    power = 0
    while (1 << power) < value:
        power += 1
    return power


@device
def torch_sum(values: Array) -> Number:
    """The sum of a contiguous f32 array in the order of torch.sum."""
    if values.size < _VECTOR:
        return _sum_rows(values, 1)[0]
    columns = _sum_rows(values, _VECTOR)
    total = _F32(0.0)
    for index in range(values.size - values.size % _VECTOR, values.size):
        total += values[index]
    for column in range(_VECTOR):
        total += columns[column]
    return total


@device
def _norm(begin: Number, end: Number) -> Number:
    """(end^3 - begin^3) / 3: the integral of the squared distance."""
    return _F32(_F32(_F32(_F32(end * end) * end) - _F32(_F32(begin * begin) * begin)) / _THREE)


@device
def _quotient_floor(a: Number, b: Number, most: Number) -> Number:
    """floor(a / b) of the exact quotient, clamped to 0 .. most; b > 0."""
    quotient = round_down(_F32(a / b))
    # The quotient is rounded, and may have been rounded up to an integer.
    quotient = quotient - _ONE if fused_multiply_add(-quotient, b, a) < _F32(0.0) else quotient
    return min(max(quotient, _F32(0.0)), most)


@device
def _quantization_error(
    counts: Array, bin_width: Number, start: Number, end: Number, levels: Number, norms: Array
) -> Number:
    """The squared error of quantizing the histogram to `levels` equal steps between bins `start` and `end`."""
    level_width = bin_width * np.float64(end - start + 1) / np.float64(levels)
    if level_width == 0.0:
        return _F32(0.0)
    width = _F32(bin_width)
    step = _F32(level_width)
    half = _F32(level_width / 2.0)
    most = _F32(levels - 1)
    whole = _norm(-half, half)
    for i in range(counts.size):
        begin = _F32(_F32(np.int32(i - start)) * width)
        finish = _F32(begin + width)
        first = _quotient_floor(begin, step, most)
        last = _quotient_floor(finish, step, most)
        density = _F32(counts[i] / width)
        norm = _F32(density * _norm(_F32(begin - _F32(_F32(first + _HALF) * step)), half))
        norm = _F32(norm + _F32(_F32(_F32(last - first) - _ONE) * _F32(density * whole)))
        centre = _F32(_F32(last * step) + half)
        norms[i] = _F32(norm + _F32(density * _norm(-half, _F32(finish - centre))))
    return torch_sum(norms)


@kernel()
def torch_search(
    counts: In[F32],  # one per bin
    minimum: F32,
    maximum: F32,
    levels: I64,  # 2^bits of the storage
    bounds: Out[F32],  # the minimum and the maximum that were found
) -> None:
    """Narrow the range, always on the side with more bins per step of 1e-5 of all counts, until the error grows."""
    bins = counts.size
    bin_width = (np.float64(maximum) - np.float64(minimum)) / np.float64(bins)
    total = np.float64(torch_sum(counts))
    cumulative = np.empty(bins, np.float32)
    running = np.float64(0.0)
    for i in range(bins):
        running += np.float64(counts[i])
        cumulative[i] = _F32(running)
    norms = np.empty(bins, np.float32)
    alpha = 0.0
    beta = 1.0
    start = 0
    end = bins - 1
    smallest = _F32(np.inf)
    while alpha < beta:
        next_alpha = alpha + _STEP
        next_beta = beta - _STEP
        low = _F32(next_alpha * total)
        high = _F32(next_beta * total)
        left = start
        right = end
        while left < end and cumulative[left] < low:
            left += 1
        while right > start and cumulative[right] > high:
            right -= 1
        next_start = start
        next_end = end
        if left - start > end - right:
            next_start = left
            alpha = next_alpha
        else:
            next_end = right
            beta = next_beta
        if next_start == start and next_end == end:
            continue
        error = _quantization_error(counts, bin_width, next_start, next_end, levels, norms)
        if error > smallest:
            break
        smallest = error
        start = next_start
        end = next_end
    step = _F32(_F32(maximum - minimum) / _F32(bins))
    bounds[0] = _F32(minimum + _F32(step * _F32(start)))
    bounds[1] = _F32(minimum + _F32(step * _F32(end + 1)))
