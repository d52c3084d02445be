"""What the service counts and times, in Prometheus' text format. Every label has a closed set of values.

Routes are the templates of the OpenAPI document, never paths that were sent; methods that no route has are `other`.

Counters and histograms are plain numbers, which Prometheus' own library writes when it is asked. That library's
instruments take a lock for each number that they change, and look a label's values up each time: 25 us for one request.
Here a change is an addition to a number in a dictionary. What several threads change is locked by whoever changes it.

Each worker process counts for itself. Whoever is asked adds what the others report (`requant_service.runtime.reports`).
"""

from __future__ import annotations

import asyncio
import platform
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import accumulate
from operator import add
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from requant import VERSION
from requant_service.runtime.request_context import current_request

Labels = tuple[str, ...]


class _Instrument(Collector):
    """Numbers of this process, and those that `others` have reported."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.text = text
        self.labels = labels
        self.others: Sequence[Any] = ()


class Counter(_Instrument):
    """Numbers that only grow, one for each combination of the values of `labels`."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        super().__init__(name, text, labels)
        self._values: dict[Labels, float] = {}

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Add to the number of these values."""
        self._values[labels] = self._values.get(labels, 0) + amount

    def report(self) -> list[Any]:
        """Return all numbers, as JSON has them."""
        return list(self._values.items())

    def continue_from(self, report: list[Any]) -> None:
        """Count on from what was reported."""
        self._values = {tuple(labels): value for labels, value in report}

    def collect(self) -> Iterator[Metric]:
        """Return the numbers of all processes as the library writes them."""
        family = CounterMetricFamily(self.name, self.text, labels=self.labels)
        values = dict(self._values)
        for report in self.others:
            for labels, value in report:
                values[tuple(labels)] = values.get(tuple(labels), 0) + value
        for labels, value in values.items():
            family.add_metric(labels, value)
        yield family


class Histogram(_Instrument):
    """How many values were at most each of `bounds`, and the sum of all, for each combination of label values."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        super().__init__(name, text, labels)
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

    def report(self) -> list[Any]:
        """Return all counts, as JSON has them."""
        return list(self._values.items())

    def continue_from(self, report: list[Any]) -> None:
        """Count on from what was reported."""
        self._values = {tuple(labels): list(counts) for labels, counts in report}

    def collect(self) -> Iterator[Metric]:
        """Return the counts of all processes as the library writes them."""
        family = HistogramMetricFamily(self.name, self.text, labels=self.labels)
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        values = dict(self._values)
        for report in self.others:
            for labels, counts in report:
                known = values.get(tuple(labels))
                values[tuple(labels)] = counts if known is None else list(map(add, known, counts))
        for labels, (*counts, total) in values.items():
            family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        yield family


class Watched(_Instrument):
    """A number that is asked for whenever the metrics are read. `merged`: that of the service, from all processes'.

    `family`: of what type it is.
    """

    def __init__(
        self,
        name: str,
        text: str,
        value: Callable[[], float],
        merged: Callable[[Iterable[float]], float],
        family: Callable[[str, str, float], Metric],
    ) -> None:
        super().__init__(name, text)
        self._family = family
        self._value = value
        self._merged = merged

    def report(self) -> float:
        """Return the number."""
        return self._value()

    def continue_from(self, report: float) -> None:
        """It is what it is now."""

    def collect(self) -> Iterator[Metric]:
        """Return the number as the library writes it."""
        yield self._family(self.name, self.text, self._merged((self._value(), *self.others)))


CONTENT_TYPE = CONTENT_TYPE_LATEST

_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LAG_PERIOD_SECONDS = 1.0


class Metrics:
    """The instruments of one application, with a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._instruments: dict[str, Counter | Histogram | Watched] = {}
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
        self.loop_lag = 0.0
        self.watch(
            "loop_lag_seconds", "How late the event loop was at its last appointment.", lambda: self.loop_lag, max
        )
        # What several threads count.
        self._lock = Lock()
        build = Gauge(
            "requant_build_info", "What is running.", ["version", "numba", "machine"], registry=self._registry
        )
        build.labels(VERSION, version("numba"), platform.machine()).set(1)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        made = Counter(f"requant_{name}", text, labels)
        self._add(made)
        return made

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        made = Histogram(f"requant_{name}", text, labels, _SECONDS)
        self._add(made)
        return made

    def watch(
        self,
        name: str,
        text: str,
        value: Callable[[], float],
        merged: Callable[[Iterable[float]], float] = sum,
        family: Callable[[str, str, float], Metric] = GaugeMetricFamily,
    ) -> None:
        """Add a metric, usually a gauge, whose value is asked for whenever the metrics are read.

        `merged`: its value for the service, from those of all worker processes.
        """
        self._add(Watched(f"requant_{name}", text, value, merged, family))

    def _add(self, instrument: Counter | Histogram | Watched) -> None:
        self._registry.register(instrument)
        self._instruments[instrument.name] = instrument

    def report(self) -> dict[str, Any]:
        """Return all numbers of this process, as JSON has them."""
        with self._lock:
            return {name: each.report() for name, each in self._instruments.items()}

    def continue_from(self, report: Mapping[str, Any]) -> None:
        """Count on from what a process had reported in whose place this one is."""
        for name, numbers in report.items():
            self._instruments[name].continue_from(numbers)

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

    def text(self, others: Sequence[Mapping[str, Any]] = ()) -> bytes:
        """Return all of it in Prometheus' text format, with what other processes of the service have reported."""
        for name, instrument in self._instruments.items():
            instrument.others = [report[name] for report in others]
        return generate_latest(self._registry)


async def loop_lags() -> AsyncIterator[float]:
    """Yield, once a second, by how many seconds the event loop was late: the earliest sign of what blocks it."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _LAG_PERIOD_SECONDS
        await asyncio.sleep(_LAG_PERIOD_SECONDS)
        yield max(0.0, loop.time() - due)
