"""torch's HistogramObserver in numpy, one operator after the other as observer.py has them, importing nothing of ours.

Every array is f32, so that each step rounds as torch's. The order of torch.sum is that of its kernel on vectors of
eight (ATen SumKernel.cpp). Source: torch 2.13 observer.py, ATen Histogram.cpp and HistogramKernel.cpp.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.oracles.quantization import f32 as rounded_f32

Array = NDArray[Any]
F32 = np.float32


def histc(values: Array, bins: int, low: F32, high: F32) -> Array:
    """Equal edges move apart by 1 or to the next f32, whichever is farther (ATen's bins_edges_correction)."""
    if low == high:
        limits = np.finfo(F32)
        low = F32(min(float(np.nextafter(low, limits.min)), float(low) - 1.0))
        high = F32(max(float(np.nextafter(high, limits.max)), float(high) + 1.0))
    inside = values[(values >= low) & (values <= high)]
    quotients = (inside - low) * F32(bins) / F32(high - low)
    if not np.isfinite(quotients).all():
        raise OverflowError("the conversion to an integer is undefined in C++")
    places = quotients.astype(np.int64)
    places[places == bins] -= 1
    return np.bincount(places, minlength=bins).astype(F32)


def linspace(low: F32, high: F32, count: int) -> Array:
    """From the nearer end, each with one rounding of the exact low + i * step."""
    step = F32(high - low) / F32(count - 1)
    exact = [
        Fraction(float(low)) + i * Fraction(float(step))
        if i < count // 2
        else Fraction(float(high)) - (count - i - 1) * Fraction(float(step))
        for i in range(count)
    ]
    return np.array([rounded_f32(value) for value in exact], F32)


def torch_sum(values: Array) -> F32:
    width = 8 if values.size >= 8 else 1
    whole = values.size // width
    rows = values[: whole * width].reshape(whole, width)
    chains = whole // 4
    power = max(4, max(0, chains - 1).bit_length() // 4)
    levels = np.zeros((4, 4, width), F32)
    done = 0
    while done + (1 << power) <= chains:
        for row in range(done, done + (1 << power)):
            levels[0] += rows[4 * row : 4 * row + 4]
        done += 1 << power
        for level in range(1, 4):
            levels[level] += levels[level - 1]
            levels[level - 1] = 0
            if done & (((1 << power) - 1) << (level * power)):
                break
    for row in range(done, chains):
        levels[0] += rows[4 * row : 4 * row + 4]
    for level in range(1, 4):
        levels[0] += levels[level]
    lanes = levels[0]
    for row in rows[4 * chains :]:
        lanes[0] += row
    for chain in range(1, 4):
        lanes[0] += lanes[chain]
    total = F32(0)
    for value in (*values[whole * width :], *lanes[0]):
        total += value
    return total


class HistogramObserver:
    """Counts, and the ends that they lie between."""

    def __init__(self, bins: int, bits: int) -> None:
        self.bins = bins
        self.levels = 2**bits
        self.counts = np.zeros(0, F32)
        self.low = self.high = F32(0)

    def observe(self, values: Array) -> None:
        values = values[~np.isinf(values)]
        if not values.size:
            return
        if not self.counts.size:
            self.low, self.high = values.min(), values.max()
            self.counts = histc(values, self.bins, self.low, self.high)
            return
        low, high = min(self.low, values.min()), max(self.high, values.max())
        new = histc(values, self.bins, low, high)
        if (low, high) == (self.low, self.high):
            self.counts = self.counts + new
        elif self.low == self.high:
            one = histc(np.array([self.low]), self.bins, low, high)
            self.counts = one * torch_sum(self.counts) + new
        else:
            self.counts = new + self._moved(low, high)
        self.low, self.high = low, high

    def _moved(self, low: F32, high: F32) -> Array:
        fine = np.repeat(self.counts, 16) / F32(16)
        middles = linspace(self.low, self.high, 16 * self.bins + 1)[:-1]
        middles = middles + F32(0.5) * (F32(self.high - self.low) / F32(16 * self.bins))
        places = np.searchsorted(linspace(low, high, self.bins + 1), middles, "right") - 1
        moved = np.zeros(self.bins, F32)
        for place, part in zip(np.clip(places, 0, self.bins - 1), fine, strict=True):
            moved[place] += part
        return moved

    def error(self, start: int, end: int) -> float:
        bin_width = (float(self.high) - float(self.low)) / self.bins
        level_width = bin_width * (end - start + 1) / self.levels
        if level_width == 0.0:
            return 0.0
        width, step, half = F32(bin_width), F32(level_width), F32(level_width / 2)
        density = self.counts / width

        def norm(begin: Any, finish: Any) -> Any:
            return density * ((finish * finish * finish - begin * begin * begin) / F32(3))

        begin = (np.arange(self.bins) - start).astype(F32) * width
        finish = begin + width
        first = np.clip(np.floor_divide(begin, step), F32(0), F32(self.levels - 1))
        last = np.clip(np.floor_divide(finish, step), F32(0), F32(self.levels - 1))
        total = norm(begin - (first + F32(0.5)) * step, half)
        total = total + (last - first - F32(1)) * norm(-half, half)
        total = total + norm(-half, finish - (last * step + half))
        return float(torch_sum(total))

    def search(self) -> tuple[F32, F32]:
        total = float(torch_sum(self.counts))
        cumulative = np.cumsum(self.counts.astype(np.float64)).astype(F32)
        alpha, beta, start, end, smallest = 0.0, 1.0, 0, self.bins - 1, float("inf")
        while alpha < beta:
            next_alpha, next_beta = alpha + 1e-5, beta - 1e-5
            left, right, next_start, next_end = start, end, start, end
            while left < end and cumulative[left] < F32(next_alpha * total):
                left += 1
            while right > start and cumulative[right] > F32(next_beta * total):
                right -= 1
            if left - start > end - right:
                next_start, alpha = left, next_alpha
            else:
                next_end, beta = right, next_beta
            if (next_start, next_end) == (start, end):
                continue
            found = self.error(next_start, next_end)
            if found > smallest:
                break
            smallest, start, end = found, next_start, next_end
        width = F32(self.high - self.low) / F32(self.bins)
        return self.low + width * F32(start), self.low + width * F32(end + 1)
