"""From start to readiness to the end: the service's threads and its kernels.

Compiled kernels are loaded and checked in a fraction of a second, in which work is refused with 503. If some have to be
compiled, requests are answered meanwhile, each as soon as its own kernels are compiled; the service is not ready until
the last one is, so that no load balancer sends requests that would wait.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from prometheus_client.core import CounterMetricFamily
from starlette.applications import Starlette
from starlette.requests import Request

from requant.errors import RequantError, SelfTestError, UnavailableError
from requant.self_test.self_test import CacheDirectoryError, Compilation, prepare_kernels
from requant_service.runtime.cgroup import available_cpus
from requant_service.runtime.checkpoint_jobs import CheckpointJobs
from requant_service.runtime.comparison_jobs import ComparisonJobs
from requant_service.runtime.credentials import Certificate, Tokens, reread_on_sighup
from requant_service.runtime.executor import Executor
from requant_service.runtime.memory_budget import MemoryBudget
from requant_service.runtime.metrics import Metrics, loop_lags
from requant_service.runtime.process_exit import PREPARING_THREAD
from requant_service.runtime.reports import Report, Reports
from requant_service.runtime.settings import SettingError, Settings
from requant_service.runtime.shared_memory.regions import SharedMemory
from requant_service.runtime.shared_numbers import Shared, SharedNumbers

Value = TypeVar("Value")

# A value that would take a larger share of the cache is not kept: it would drive out too many others.
_LARGEST_SHARE = 8


class PlanCache(Generic[Value]):
    """What was expensive to make and may be asked for again, from any thread.

    The values that were used last are kept, as many as fit into `limit` bytes by what their makers say of their size.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._lock = Lock()
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many values there are."""
        return len(self._values)

    def get(self, key: Hashable) -> Value | None:
        """Return the value of that key, if it is there, as the one that was used last."""
        entry = self._values.get(key)
        if entry is None:
            return None
        try:  # noqa: SIM105  # suppress() takes longer than all else here
            self._values.move_to_end(key)
        except KeyError:
            pass  # another thread has just dropped it
        return entry[0]

    def put(self, key: Hashable, value: Value, size: int) -> None:
        """Keep a value of about `size` bytes, key included, and drop what was not used for longest."""
        if size * _LARGEST_SHARE > self._limit:
            return
        with self._lock:
            if key in self._values:
                return
            self._values[key] = value, size
            self._held += size
            while self._held > self._limit:
                _, (_, dropped) = self._values.popitem(last=False)
                self._held -= dropped


_log = logging.getLogger("uvicorn.error")


class HealthStatus(StrEnum):
    """State of the service, as shown by `/healthz`."""

    STARTING = "starting"
    COMPILING = "compiling"
    READY = "ready"
    FAILED = "failed"
    DRAINING = "draining"
    STOPPING = "stopping"


_STATUSES = tuple(HealthStatus)


def status_number(status: HealthStatus) -> int:
    """Return what a worker that is in this state has as `Shared.STATUS`. 0 is one that was not started."""
    return 1 + _STATUSES.index(status)


_READY = status_number(HealthStatus.READY)
_WORKING = (HealthStatus.COMPILING, HealthStatus.READY, HealthStatus.DRAINING)

# What small requests may take beyond the memory budget: a few thousand of 1 KB.
_MAX_SMALL_SHARE = 4 << 20

# How often the log shows the progress of the compilation.
_PROGRESS_SECONDS = 10.0


class Runtime:
    """What lives as long as the process: the threads, the status, and how many kernels are there.

    `numbers`: what it shares with the other worker processes of the service. It is made before they are forked, and
    begins to live in each (`lifespan`).

    Raises SettingError if the files of tokens or of the certificate, or the roots of checkpoints, cannot be used.
    """

    def __init__(self, settings: Settings, numbers: SharedNumbers | None = None) -> None:
        self.settings = settings
        self.numbers = SharedNumbers() if numbers is None else numbers
        self.reports = Reports(self.numbers)
        self._status = HealthStatus.STARTING
        self._seen_health = HealthStatus.STARTING
        self.status_listeners: list[Callable[[HealthStatus], None]] = []
        self.tick_listeners: list[Callable[[], None]] = []
        # Serves a connection to the gRPC port that was accepted elsewhere.
        self.serve_grpc: Callable[[socket.socket], Awaitable[None]] | None = None
        # Set when nothing more is accepted.
        self.closing = asyncio.Event()
        self.kernels = 0
        self.compilation: Compilation | None = None
        self.tokens = None if settings.tokens_file is None else _tokens(settings.tokens_file)
        self.certificate: Certificate | None = None
        if settings.tls_certificate is not None and settings.tls_key is not None:
            self.certificate = Certificate(settings.tls_certificate, settings.tls_key)
        self.metrics = Metrics()
        self.metrics.watch(
            "ready", "Whether the service is ready.", lambda: float(self.health is HealthStatus.READY), min
        )
        self.memory_budget = MemoryBudget(
            settings.memory_bytes,
            settings.max_waiting,
            settings.waiting_seconds,
            self.metrics.rejected,
            min(settings.memory_bytes // 64, _MAX_SMALL_SHARE),
            self.numbers,
        )
        self.metrics.watch("inflight_bytes", "Memory that requests hold.", lambda: self.memory_budget.own_reserved)
        self.metrics.watch(
            "memory_budget_bytes", "Memory that requests may hold.", lambda: self.memory_budget.budget, max
        )
        self.metrics.watch("waiting_requests", "Requests that wait for memory.", lambda: self.memory_budget.waiting)
        self.executor = Executor(
            settings.threads, settings.inline_bytes, settings.max_compute_seconds, settings.max_queued, self.numbers
        )
        self.shared_memory = SharedMemory(settings.max_shared_memory_regions) if settings.shared_memory else None
        if self.shared_memory is not None:
            regions = self.shared_memory
            self.metrics.watch("shared_memory_regions", "Registered shared memory regions.", lambda: len(regions), max)
            self.metrics.watch(
                "shared_memory_bytes", "Bytes of registered shared memory.", lambda: regions.mapped_bytes, max
            )
        self.checkpoint_jobs = None
        if settings.checkpoint_roots:
            self.checkpoint_jobs = _checkpoint_jobs(settings, self.closing, self.numbers)
        if self.checkpoint_jobs is not None:
            jobs = self.checkpoint_jobs
            self.metrics.watch("checkpoint_jobs", "Checkpoint jobs that run here.", lambda: jobs.running)
        comparisons = self.comparison_jobs = ComparisonJobs(
            settings.equivalence_jobs, settings.checkpoint_threads, self.numbers, self.reports
        )
        self.metrics.watch("equivalence_jobs", "Comparisons that run here.", lambda: comparisons.running)
        self.metrics.watch("workers", "Worker processes.", lambda: self.numbers.workers, max)
        self.metrics.watch(
            "worker_restarts",
            "Workers that were started in the place of one that had ended.",
            lambda: self.numbers.of_service(Shared.RESTARTS),
            max,
            CounterMetricFamily,
        )
        # Decoded queries and heads of requests, and plans.
        cached = settings.plan_cache_bytes // self.numbers.workers
        self.decoded: PlanCache[Any] = PlanCache(cached // 4)
        self.planned: PlanCache[Any] = PlanCache(cached)

    @property
    def status(self) -> HealthStatus:
        """The state of this process."""
        return self._status

    @status.setter
    def status(self, status: HealthStatus) -> None:
        self._status = status
        self.numbers.put(Shared.STATUS, status_number(status))
        self.watch_health()

    @property
    def health(self) -> HealthStatus:
        """The state of the service: that of this process, and if it is ready, the one of a worker that is not."""
        if self._status is HealthStatus.READY and self.numbers.are_shared:
            for status in self.numbers.all_of(Shared.STATUS):
                if status != _READY:
                    return _STATUSES[status - 1] if status else HealthStatus.STARTING
        return self._status

    def tick(self) -> None:
        """Look at what other workers have changed, and call `tick_listeners`. Called ten times a second."""
        self.watch_health()
        for listener in self.tick_listeners:
            listener()

    def watch_health(self) -> None:
        """Call `status_listeners` if the state of the service has changed. Not always on the event loop."""
        if (health := self.health) is not self._seen_health:
            self._seen_health = health
            for listener in self.status_listeners:
                listener(health)

    def rereads(self) -> list[Callable[[], None]]:
        """Return what reads the files of settings again."""
        return [each.reread for each in (self.tokens, self.certificate) if each is not None]

    def report(self) -> Report:
        """Return what other workers of the service ask for."""
        return Report(self.metrics.report(), self.comparison_jobs.comparisons())

    async def metrics_text(self) -> bytes:
        """Return the metrics of the service, in Prometheus' text format. No sum ever falls: what was shown is kept."""
        self.reports.publish()
        return self.metrics.text([each.metrics for each in await self.reports.of_others()])

    def require_ready(self) -> None:
        """Refuse work before the kernels in the cache have been checked. Raise UnavailableError."""
        if self._status not in _WORKING:
            raise UnavailableError(f"the service is {self.status} and accepts no work")

    async def warm_up(self) -> None:
        """Load or compile every kernel, check the known answers, then be ready."""
        if self.kernels:
            # They were there before this process was forked.
            self.status = HealthStatus.READY
            gc.enable()
            return
        loop = asyncio.get_running_loop()

        def begin(compilation: Compilation) -> None:
            self.compilation = compilation

        def answering(may: bool) -> None:
            loop.call_soon_threadsafe(self._answer_while_compiling if may else self._refuse_while_recompiling)

        log = asyncio.create_task(self._log_progress())
        try:
            workers = available_cpus()
            self.kernels = await asyncio.wrap_future(
                _in_daemon_thread(lambda: prepare_kernels(workers, begin, answering))
            )
        except (SelfTestError, CacheDirectoryError) as error:
            # Stay up and say so: a probe restarts the process, a person reads this line.
            self.status = HealthStatus.FAILED
            _log.error("The kernels cannot be used, and the service accepts no work: %s", error)
        except Exception:
            self.status = HealthStatus.FAILED
            _log.exception("Kernel compilation or self-test failed; the service accepts no work.")
        else:
            # What is there now stays. The collector would go through all of it while requests wait.
            gc.freeze()
            if self.status in (HealthStatus.STARTING, HealthStatus.COMPILING):
                self.status = HealthStatus.READY
            _log.info("Ready: %d kernels, %d threads.", self.kernels, self.settings.threads)
        finally:
            log.cancel()
            self.compilation = None
            self.executor.use_work_threads()
            gc.enable()

    def _answer_while_compiling(self) -> None:
        if self.status is HealthStatus.STARTING:
            self.executor.use_compile_threads()
            self.status = HealthStatus.COMPILING
            _log.info(
                "Compiling kernels for this CPU. They are cached for later starts; requests are served meanwhile, "
                "and each waits only for the kernels it needs."
            )
            # Requests leave garbage from now on. What exists already stays, and need not be searched.
            gc.freeze()
            gc.enable()

    def _refuse_while_recompiling(self) -> None:
        if self.status is HealthStatus.COMPILING:
            self.status = HealthStatus.STARTING

    async def _log_progress(self) -> None:
        """Log the progress, for whoever waits at a terminal."""
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            if self.compilation is None or self.compilation.complete:
                continue
            compiled, total, left = self.compilation.progress()
            if self.status is HealthStatus.COMPILING:
                about = "" if left is None else f", about {left} s left"
                _log.info("Compiling kernels: %d of %d%s.", compiled, total, about)

    async def watch(self) -> None:
        """Measure how late the event loop is, and report it, once a second: all that runs as long as the service."""
        async for lag in loop_lags():
            self.metrics.loop_lag = lag
            self.reports.publish()

    def drain(self) -> None:
        """Announce that no more work is wanted. Requests are still served: a balancer needs a while to notice."""
        if self.status is HealthStatus.READY:
            self.status = HealthStatus.DRAINING


def _checkpoint_jobs(settings: Settings, closing: asyncio.Event, numbers: SharedNumbers) -> CheckpointJobs:
    try:
        return CheckpointJobs(
            settings.checkpoint_roots, settings.checkpoint_jobs, settings.checkpoint_threads, closing, numbers
        )
    except RequantError as error:
        raise SettingError("checkpoint_roots", error.detail) from None


def _tokens(path: Path) -> Tokens:
    try:
        return Tokens(path)
    except (OSError, ValueError) as error:
        raise SettingError("tokens_file", error) from None


def _in_daemon_thread(work: Callable[[], int]) -> Future[int]:
    """Run `work` in a thread that the process does not wait for when it ends, as it does for those of an executor."""
    result: Future[int] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    result.set_running_or_notify_cancel()
    threading.Thread(target=run, name=PREPARING_THREAD, daemon=True).start()
    return result


RUNTIME_KEY = "requant.runtime"
"""Where the outermost layer puts the runtime into the scope of a request."""


def runtime(request: Request) -> Runtime:
    """Return the runtime of the application that serves `request`."""
    running: Runtime = request.scope[RUNTIME_KEY]
    return running


def require_ready(request: Request) -> Runtime:
    """Return the runtime, or refuse the work while the kernels are not there."""
    running = runtime(request)
    running.require_ready()
    return running


def require_open(request: Request) -> None:
    """Raise UnavailableError unless the service is ready: for the probes of balancers."""
    health = runtime(request).health
    if health is not HealthStatus.READY:
        raise UnavailableError(f"the service is {health}")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Start the warm-up in the background and, at the end, let the threads finish what they have."""
    current: Runtime = app.state.runtime
    current.executor.start()
    current.reports.made = current.report
    if (before := current.reports.last()) is not None:
        current.metrics.continue_from(before.metrics)
    current.reports.start()
    warm_up = asyncio.create_task(current.warm_up())
    watch = asyncio.create_task(current.watch())
    try:
        with reread_on_sighup(current.rereads()):
            yield
    finally:
        current.status = HealthStatus.STOPPING
        warm_up.cancel()
        watch.cancel()
        await asyncio.to_thread(current.comparison_jobs.close, current.settings.shutdown_seconds)
        if current.checkpoint_jobs is not None:
            await asyncio.to_thread(current.checkpoint_jobs.close, current.settings.shutdown_seconds)
        current.reports.stop()
        current.executor.shut_down()
