"""Counters and histograms as plain numbers, which Prometheus' own library puts into words when it is asked.

That library's instruments take a lock for each number that they change, and look a label's values up each time: 25 us
for one request. Here a change is an addition to a number in a dictionary. What several threads change is locked by
whoever changes it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]


class Counter(Collector):
    """Numbers that only grow, one for each combination of the values of `labels`."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._described = name, text, labels
        self._values: dict[Labels, float] = {}

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Add to the number of these values."""
        self._values[labels] = self._values.get(labels, 0) + amount

    def collect(self) -> Iterator[Metric]:
        """Return the numbers as the library writes them."""
        name, text, names = self._described
        family = CounterMetricFamily(name, text, labels=names)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value)
        yield family


class Histogram(Collector):
    """How many values were at most each of `bounds`, and the sum of all, for each combination of label values."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._described = name, text, labels
        self._bounds = bounds
        # The counts between the bounds, and above the last; then the sum.
        self._values: dict[Labels, list[float]] = {}

    def observe(self, labels: Labels, value: float) -> None:
        """Count a value."""
        found = self._values.get(labels)
        if found is None:
            found = self._values[labels] = [0] * (len(self._bounds) + 2)
        found[bisect_left(self._bounds, value)] += 1
        found[-1] += value

    def collect(self) -> Iterator[Metric]:
        """Return the counts as the library writes them."""
        name, text, names = self._described
        family = HistogramMetricFamily(name, text, labels=names)
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        for labels, (*counts, total) in list(self._values.items()):
            family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        yield family
