"""Ranges from data, slowly: numpy scalars and lists, from the specification, importing nothing of ours.

Data are lists or arrays of numpy floats; every step on them rounds to their own precision. Each method names the
program that it was written from.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
F32 = np.float32


def members(shape: Sequence[int], blocks: Sequence[int]) -> list[list[int]]:
    """The flat indices of each block, in row-major order, blocks in row-major order. A last block may be short."""
    ranges = [
        [range(start, min(start + block, size)) for start in range(0, size, block)]
        for size, block in zip(shape, blocks, strict=True)
    ]
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return [
        [sum(i * s for i, s in zip(index, strides, strict=True)) for index in itertools.product(*block)]
        for block in itertools.product(*ranges)
    ]


def moving_average(tensors: Sequence[Array], constant: float) -> tuple[F32, F32]:
    """torch MovingAverageMinMaxObserver: f32, the first tensor's ends, then m + c * (cur - m)."""
    low = high = F32(0)
    for index, tensor in enumerate(tensors):
        ends = F32(min(tensor.tolist())), F32(max(tensor.tolist()))
        if index == 0:
            low, high = ends
        else:
            low += F32(F32(constant) * F32(ends[0] - low))
            high += F32(F32(constant) * F32(ends[1] - high))
    return low, high


# --- Histograms ----------------------------------------------------------------------------------------------------


def equal_edges(first: Any, last: Any, bins: int) -> list[Any]:
    """n + 1 edges: i * ((last - first) / n) + first, and the last one exactly."""
    real = type(first)
    step = real(real(last - first) / real(bins))
    return [*(real(real(real(i) * step) + first) for i in range(bins)), last]


def count_between(values: Sequence[Any] | Array, edges: Sequence[Any]) -> list[int]:
    """How many lie in each [edge, next edge), the last one closed."""
    numbers = [float(edge) for edge in edges]
    counts = [0] * (len(edges) - 1)
    for value in values:
        if numbers[0] <= value <= numbers[-1]:
            counts[min(bisect_right(numbers, float(value)), len(counts)) - 1] += 1
    return counts


def value_histogram(tensors: Sequence[Array], bins: int) -> tuple[list[int], list[Any]]:
    """Between -T and T; a tensor with a larger T adds whole bins of the old width on both sides."""
    real = tensors[0].dtype.type
    counts: list[int] = []
    reach = real(0)
    for index, tensor in enumerate(tensors):
        new = max((abs(value) for value in tensor), default=real(0))
        if index == 0:
            reach, counts = new, [0] * bins
        elif reach == 0:
            reach = max(reach, new)
        elif new > reach:
            width = real(real(2) * reach / real(len(counts)))
            added = math.floor(np.floor_divide(real(new - reach), width)) + 1
            reach = real(real(added) * width) + reach
            counts = [0] * added + counts + [0] * added
        end = reach if reach else real(0.5)
        edges = equal_edges(-end, end, len(counts))
        counts = [old + more for old, more in zip(counts, count_between(tensor, edges), strict=True)]
    return counts, edges


def magnitude_histogram(tensors: Sequence[Array], bins: int) -> tuple[list[int], list[Any]]:
    """Of |x|; a tensor with a larger magnitude adds bins of the first one's width, counted between f64 edges."""
    real = tensors[0].dtype.type
    first, last = np.abs(tensors[0]).min(), np.abs(tensors[0]).max()
    if first == last:
        first, last = real(first - real(0.5)), real(last + real(0.5))
    edges = equal_edges(first, last, bins)
    counts = count_between(np.abs(tensors[0]), edges)
    for tensor in tensors[1:]:
        largest = np.abs(tensor).max()
        if largest > edges[-1]:
            width = real(edges[1] - edges[0])
            begin, stop = real(edges[-1] + width), real(largest + width)
            number = max(0, math.ceil(float(real(real(stop - begin) / width))))
            following = [float(begin), float(real(begin + width))]
            step = following[1] - following[0]
            edges = edges + [following[i] if i < 2 else float(begin) + i * step for i in range(number)]
        found = count_between(np.abs(tensor), edges)
        counts = [old + new for old, new in zip(counts + [0] * (len(found) - len(counts)), found, strict=True)]
        edges = [real(edge) for edge in edges]
    return counts, edges


def edge_at(counts: Sequence[int], edges: Sequence[Any], share: float) -> Any:
    """The lower edge of the first bin up to which there is `share` of the counts."""
    total, running, shares = sum(counts), 0.0, []
    for count in counts:
        running += count / total
        shares.append(running)
    return edges[bisect_left(shares, share)]


def within(low: Any, high: Any, tensors: Sequence[Array]) -> tuple[Any, Any]:
    """Clip to the observed range."""
    return max(low, min(t.min() for t in tensors)), min(high, max(t.max() for t in tensors))


def percentile(tensors: Sequence[Array], share: float, bins: int, *, magnitudes: bool) -> tuple[Any, Any]:
    """onnxruntime PercentileCalibrater."""
    if magnitudes:
        counts, edges = magnitude_histogram(tensors, bins)
        reach = edge_at(counts, edges, share / 100.0)
        return within(-reach, reach, tensors)
    counts, edges = value_histogram(tensors, bins)
    cut = (100.0 - share) / 200.0
    return within(edge_at(counts, edges, cut), edge_at(counts, edges, 1.0 - cut), tensors)


# --- Entropy ---------------------------------------------------------------------------------------------------------


def smooth(counts: Array) -> Array | None:
    """f32: each zero becomes 1e-4, the others lose as much in all."""
    zeros, others = int((counts == 0).sum()), int((counts != 0).sum())
    if not others:
        return None
    return np.where(counts == 0, F32(0.0001), counts.astype(F32) + F32(-(0.0001 * zeros / others))).astype(F32)


def divergence(p: Array, q: Array) -> float:
    """Sum of p ln(p / q) of what both are divided by their sums, in f32 and numpy's order."""
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())


def entropy(tensors: Sequence[Array], bins: int, levels: int) -> tuple[Any, Any]:
    """onnxruntime EntropyCalibrater."""
    listed, edges = value_histogram(tensors, bins)
    start, end = most_telling_part(np.array(listed), levels)
    return within(edges[start], edges[end], tensors)


def most_telling_part(counts: Array, levels: int) -> tuple[int, int]:
    """onnxruntime EntropyCalibrater: the first bin, and the one after the last."""
    middle, best = counts.size // 2, (math.inf, 0, 0)
    for reach in range(levels // 2, middle + 1):
        start, end = middle - reach, min(middle + reach + 1, counts.size)
        part = counts[start:end]
        p = part.copy()
        p[0] += counts[:start].sum()
        p[-1] += counts[end:].sum()
        size = part.size // levels
        q = np.zeros_like(p)
        for level in range(levels):
            group = slice(level * size, (level + 1) * size)
            total = part[group].sum() + (part[levels * size :].sum() if level == levels - 1 else 0)
            if filled := np.count_nonzero(p[group]):
                q[group] = int(total / filled)
        smooth_p, smooth_q = smooth(p), smooth(q)
        found = math.inf if smooth_p is None or smooth_q is None else divergence(smooth_p, smooth_q)
        if reach == levels // 2 or found < best[0]:
            best = (found, start, end)
    return best[1], best[2]


def most_telling_length(counts: Sequence[int], levels: int, fewest: int) -> int:
    """NVIDIA Model Optimizer HistogramCalibrator: how many of the first bins."""
    tally = [counts[1], *counts[1:]]
    found = []
    for length in range(fewest, len(tally) + 1):
        p = [float(count) for count in tally[:length]]
        members: dict[int, list[int]] = {}
        for i in range(length):
            if tally[i]:
                members.setdefault(i * levels // length, []).append(i)
        q = [0.0] * length
        for group in members.values():
            for i in group:
                q[i] = sum(tally[j] for j in group) / len(group)
        p[-1] += sum(tally[length:])
        terms = [
            math.inf if b == 0 else a / sum(p) * math.log(a / sum(p) / (b / sum(q)))
            for a, b in zip(p, q, strict=True)
            if a
        ]
        found.append((sum(terms), -length))
    return -min(found)[1]


# --- Smallest squared error ------------------------------------------------------------------------------------------


def smallest_error(
    values: Sequence[float], low: float, high: float, candidates: int, restore: Callable[[float, float, float], float]
) -> int:
    """The first k of 1..K whose range (low * k / K, high * k / K) restores with the smallest error, added in order."""
    best, chosen = math.inf, 0
    for k in range(1, candidates + 1):
        total = 0.0
        for x in values:
            error = restore(x, low * k / candidates, high * k / candidates) - x
            total += error * error
        if total < best:
            best, chosen = total, k
    return chosen
