"""Kullback-Leibler divergences of a histogram from what is left of it when it is quantized, in two systems' rules.

A candidate is a part of the bins: what lies outside of it is clipped to it, what lies inside is merged into `levels`
groups. p is the histogram with its clipped ends, q the merged one spread over the bins again; the candidate of the
smallest sum of p ln(p / q) is chosen.
"""

from __future__ import annotations

import math

import numpy as np

from requant.kernels.jit.jit import Array, Number, device, kernel
from requant.kernels.jit.signature import I64, In, Out
from requant.kernels.scalar.pairwise_sum import pairwise_sum
from requant.kernels.scalar.rounding import bits_of_f32, f32_of_bits, fused_multiply_add

# ln(1 + x) = P(x) / Q(x), the rational function of numpy's f32 logarithm.
_P5, _P4, _P3 = (
    np.float32(2.589979117907922693523e-02),
    np.float32(0.3808837741388407920751),
    np.float32(1.480000633576506),
)
_P2, _P1 = np.float32(2.112677543073053063722), np.float32(0.9999999999999998702752)
_Q5, _Q4 = np.float32(5.875095403124574342950e-03), np.float32(0.1546476374983906719538)
_Q3, _Q2, _Q1 = np.float32(0.9864942958519418960339), np.float32(2.453006071784736), np.float32(2.612677543073109236779)
_LN_2 = np.float32(0.693147180559945309417)
_SQRT_HALF = np.float32(0.707106781186547524400)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)

_SMOOTHED = 0.0001


@device
def logarithm(x: Number) -> Number:
    """The natural logarithm of a normal positive f32, as numpy computes it on every vector unit with fused steps.

    x = m * 2^e with sqrt(1/2) < m <= sqrt(2); ln x = e ln 2 + P(m - 1) / Q(m - 1). Source: numpy 2.4, its f32 log.
    """
    bits = bits_of_f32(x)
    exponent = np.float32((bits >> 23) - 126)
    mantissa = f32_of_bits(np.int32((bits & 0x7FFFFF) | (126 << 23)))
    low = mantissa <= _SQRT_HALF
    exponent = np.float32(exponent - _ONE) if low else exponent
    y = np.float32((np.float32(mantissa + mantissa) if low else mantissa) - _ONE)
    p = fused_multiply_add(_P5, y, _P4)
    p = fused_multiply_add(p, y, _P3)
    p = fused_multiply_add(p, y, _P2)
    p = fused_multiply_add(p, y, _P1)
    p = fused_multiply_add(p, y, _ZERO)
    q = fused_multiply_add(_Q5, y, _Q4)
    q = fused_multiply_add(q, y, _Q3)
    q = fused_multiply_add(q, y, _Q2)
    q = fused_multiply_add(q, y, _Q1)
    q = fused_multiply_add(q, y, _ONE)
    return fused_multiply_add(exponent, _LN_2, np.float32(p / q))


@device
def _smooth(counts: Array, smoothed: Array) -> Number:
    """Write counts to f32 with 1e-4 for each zero, taken in equal parts from the others. Return how many are not zero.

    The part is at most 1: there must be less than 10^4 times as many zeros.
    """
    zeros = 0
    for count in counts:
        zeros += count == 0
    others = counts.size - zeros
    if others:
        taken = np.float32(-(_SMOOTHED * np.float64(zeros) / np.float64(others)))
        for i in range(counts.size):
            smoothed[i] = np.float32(counts[i]) + taken if counts[i] != 0 else np.float32(_SMOOTHED)
    return others


@device
def _normalized_divergence(p: Array, q: Array) -> Number:
    """Sum of p ln(p / q) in f32 after both were divided by their sums; all are positive. q is overwritten."""
    p_sum = pairwise_sum(p)
    q_sum = pairwise_sum(q)
    for i in range(p.size):
        share = np.float32(p[i] / p_sum)
        q[i] = np.float32(share * logarithm(np.float32(share / np.float32(q[i] / q_sum))))
    return pairwise_sum(q)


@kernel()
def onnxruntime_divergence(
    counts: In[I64],  # row after row
    bins: In[I64],  # one per row; at most `stride`
    stride: I64,  # from one row of counts to the next
    levels: I64,  # levels; half of them at most half of the bins
    starts: Out[I64],  # the first bin of the chosen candidate, one per row
    ends: Out[I64],  # the one after the last, one per row
) -> None:
    """Choose by onnxruntime's rule: parts around the middle bin, from `levels` bins to all of them.

    A level is len // levels bins, the last level has what is left over too. A bin of p that is not zero gets its
    level's count, divided by the number of such bins and truncated; bins beyond levels * (len // levels) get none.
    Zeros of both are smoothed. In f32; the first of equals. A q without any count diverges infinitely.
    Source: onnxruntime 1.31 calibrate.py get_entropy_threshold.
    """
    merged = np.empty(stride, np.int64)
    p_counts = np.empty(stride, np.int64)
    p_smooth = np.empty(stride, np.float32)
    q_smooth = np.empty(stride, np.float32)
    for row in range(bins.size):
        tally = counts[row * stride : row * stride + bins[row]]
        middle = bins[row] // 2
        smallest = np.float32(0.0)
        starts[row] = -1
        for reach in range(levels // 2, middle + 1):
            start = middle - reach
            end = min(middle + reach + 1, bins[row])
            length = end - start
            part: Array = tally[start:end]
            p = p_counts[:length]
            q = merged[:length]
            p[:] = part
            p[0] += tally[:start].sum()
            p[length - 1] += tally[end:].sum()
            size = length // levels
            for i in range(length):
                q[i] = 0
            for level in range(levels):
                begin = level * size
                total = part[begin : begin + size].sum()
                if level == levels - 1:
                    total += part[levels * size :].sum()
                filled = 0
                for i in range(begin, begin + size):
                    filled += p[i] != 0
                if filled:
                    # Counts are below 2^53, and there is at least one bin.
                    share = np.int64(np.float64(total) / np.float64(filled))
                    for i in range(begin, begin + size):
                        q[i] = share
            divergence = np.float32(np.inf)
            if _smooth(p, p_smooth[:length]) and _smooth(q, q_smooth[:length]):
                divergence = _normalized_divergence(p_smooth[:length], q_smooth[:length])
            if starts[row] < 0 or divergence < smallest:
                smallest = divergence
                starts[row] = start
                ends[row] = end


@kernel()
def model_optimizer_divergence(
    counts: In[I64],  # row after row
    bins: In[I64],  # one per row; at least 2, at most `stride`
    stride: I64,  # from one row of counts to the next
    levels: I64,
    fewest: I64,  # bins of the smallest candidate; at most `bins`
    ends: Out[I64],  # how many bins the chosen candidate has, one per row
) -> None:
    """Choose by the rule of NVIDIA's Model Optimizer, for histograms of magnitudes: parts from the first bin on.

    The first bin counts as much as the second. Bin i of n belongs to level floor(i * levels / n); a bin that is not
    zero gets the mean of such bins of its level, the others 0. In f64; the last of equals, of NaN before numbers.
    Source: nvidia-modelopt 0.47 calib/histogram.py _compute_amax_entropy, with scipy.stats.entropy.
    """
    reals = np.empty(stride, np.float64)
    spread = np.empty(stride, np.float64)
    for row in range(bins.size):
        tally = counts[row * stride : row * stride + bins[row]].copy()
        tally[0] = tally[1]
        smallest = np.inf
        ends[row] = -1
        for length in range(fewest, bins[row] + 1):
            p = reals[:length]
            q = spread[:length]
            begin = 0
            for level in range(1, levels + 1):
                end = -(-level * length // levels)
                total = 0
                filled = 0
                for i in range(begin, end):
                    total += tally[i]
                    filled += tally[i] != 0
                for i in range(begin, end):
                    p[i] = tally[i]
                    q[i] = total / filled if tally[i] != 0 else 0.0
                begin = end
            p[length - 1] += tally[length:].sum()
            p_sum = pairwise_sum(p)
            q_sum = pairwise_sum(q)
            for i in range(length):
                q[i] = _relative_entropy(p[i] / p_sum, q[i] / q_sum)
            divergence = pairwise_sum(q)
            # A candidate without any counts has no number as its divergence. numpy's argmin takes it for the smallest.
            if ends[row] < 0 or divergence <= smallest or divergence != divergence:
                smallest = divergence
                ends[row] = length


@device
def _relative_entropy(p: Number, q: Number) -> Number:
    if p > 0.0 and q > 0.0:
        return p * math.log(p / q)
    if q != q:
        return q
    return 0.0 if p == 0.0 else np.inf
