"""What the service counts and times, in Prometheus' text format. Every label has a closed set of values.

Routes are the templates of the OpenAPI document, never paths that were sent; methods that no route has are `other`.

Counters and histograms are plain numbers, which Prometheus' own library writes when it is asked. That library's
instruments take a lock for each number that they change, and look a label's values up each time: 25 us for one request.
Here a change is an addition to a number in a dictionary. What several threads change is locked by whoever changes it.
"""

from __future__ import annotations

import asyncio
import platform
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import accumulate
from threading import Lock

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from requant import VERSION
from requant_service.runtime.request_context import current_request

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
        counts = self._values.get(labels)
        if counts is None:
            counts = self._values[labels] = [0] * (len(self._bounds) + 2)
        counts[bisect_left(self._bounds, value)] += 1
        counts[-1] += value

    def collect(self) -> Iterator[Metric]:
        """Return the counts as the library writes them."""
        name, text, names = self._described
        family = HistogramMetricFamily(name, text, labels=names)
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        for labels, (*counts, total) in list(self._values.items()):
            family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        yield family


CONTENT_TYPE = CONTENT_TYPE_LATEST

_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LAG_PERIOD_SECONDS = 1.0


class Metrics:
    """The instruments of one application, with a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests answered.", "route", "method", "code")
        self._request_seconds = self._histogram("request_seconds", "From a request's head to its reply's end.", "route")
        self._bytes = self._counter("bytes", "Bytes of bodies.", "direction", "route")
        self.in_flight = 0
        """Requests that are being served."""
        self.watch("inflight_requests", "Requests that are being served.", lambda: self.in_flight)
        self._elements = self._counter("elements", "Elements converted.", "operation", "element")
        self._saturated = self._counter("saturated", "Elements that were saturated.", "operation")
        self._work_seconds = self._histogram(
            "work_seconds", "Time that a conversion took, without waiting.", "operation", "profile"
        )
        self._rejected = self._counter("admission_rejected", "Requests refused for want of memory.", "reason")
        self._loop_lag = self._gauge("loop_lag_seconds", "How late the event loop was at its last appointment.")
        # What several threads count.
        self._lock = Lock()
        build = self._gauge("build_info", "What is running.", "version", "numba", "machine")
        build.labels(VERSION, version("numba"), platform.machine()).set(1)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        made = Counter(f"requant_{name}", text, labels)
        self._registry.register(made)
        return made

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"requant_{name}", text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        made = Histogram(f"requant_{name}", text, labels, _SECONDS)
        self._registry.register(made)
        return made

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is asked for whenever the metrics are read."""
        self._gauge(name, text).set_function(value)

    def begin(self) -> None:
        """A request has come in."""
        self.in_flight += 1

    def end(self, route: str, method: str, status: int, seconds: float, received: int, sent: int) -> None:
        """A request was answered, or given up (status 0)."""
        self.in_flight -= 1
        self._requests.add((route, method if method in _METHODS else "other", str(status)))
        self._request_seconds.observe((route,), seconds)
        self._bytes.add(("in", route), received)
        self._bytes.add(("out", route), sent)

    def converted(self, operation: str, profile: str, element: str, elements: int, saturated: int) -> None:
        """A tensor was converted to elements of a type. It is charged with all work for its request until now."""
        context = current_request.get(None)
        with self._lock:
            self._elements.add((operation, element), elements)
            self._saturated.add((operation,), saturated)
            if context is not None:
                self._work_seconds.observe((operation, profile), context.worked)

    def rejected(self, reason: str) -> None:
        """A request was refused admission."""
        self._rejected.add((reason,))

    async def watch_loop(self) -> None:
        """Measure how late the event loop is: the earliest sign of something that blocks it."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_PERIOD_SECONDS
            await asyncio.sleep(_LAG_PERIOD_SECONDS)
            self._loop_lag.set(max(0.0, loop.time() - due))

    def text(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self._registry)
