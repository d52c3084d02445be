"""The checkpoint jobs that this process runs, what they hold of its memory, and the threads that wait for storage.

A storage server that accepts connections and answers nothing blocks each thread that asks it, for minutes. So every
root has threads of its own, and two kinds of them: for plans, which read much and compute, and for the small files by
which jobs are inspected and cancelled. Both have queues of limited length. A request is answered after a stated time,
whether or not its thread has come back; work whose request has ended stops at its next step.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from threading import Lock
from time import perf_counter, thread_time
from typing import TypeVar

from requant.checkpoint.jobs import ConversionJob, JobState
from requant.checkpoint.storage.location import Roots
from requant.errors import DeadlineError, LimitError, OverloadedError, UnavailableError
from requant.errors.cancellation import cancellation_check
from requant_service.runtime.memory_budget import MemoryBudget, Reservation
from requant_service.runtime.request_context import RequestContext, current_request
from requant_service.runtime.shared_numbers import Shared, SharedNumbers

Result = TypeVar("Result")

ANSWER_SECONDS = 60.0
"""How long a request waits for storage and for what is computed from it."""
COMPUTE_SECONDS = 30.0
"""CPU time of one plan."""
THREADS = 2
MAX_QUEUED = 16
"""Of each kind and root."""
_POLL_SECONDS = 0.25


class StorageThreads:
    """The threads of one kind for one root. `closing`: set when the service ends and waits must stop."""

    def __init__(self, name: str, closing: asyncio.Event) -> None:
        self._closing = closing
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix=f"checkpoint-{name}")
        self._lock = threading.Lock()
        self._present = 0

    async def run(self, work: Callable[[], Result], abandoned: Callable[[], None] = lambda: None) -> Result:
        """Return the result of `work`, which asks whether to go on (`requant.errors.cancellation`).

        `abandoned` is called when the work has ended, if its request has ended before.

        Raises OverloadedError if too many requests wait for these threads, DeadlineError after ANSWER_SECONDS or
        COMPUTE_SECONDS of CPU time, UnavailableError when the service ends, and what `work` raises.
        """
        context = current_request.get(None) or RequestContext()
        expired = threading.Event()

        def run() -> Result:
            computing = thread_time()

            def check() -> None:
                if expired.is_set():
                    raise _no_answer()
                context.check(thread_time() - computing, COMPUTE_SECONDS)

            token = cancellation_check.set(check)
            try:
                check()
                return work()
            finally:
                cancellation_check.reset(token)
                context.computed += thread_time() - computing
                with self._lock:
                    self._present -= 1

        with self._lock:
            if self._present >= THREADS + MAX_QUEUED:
                raise OverloadedError(
                    f"{self._present} requests wait for the storage of this root already; send the request again later"
                )
            self._present += 1
        try:
            future = self._executor.submit(copy_context().run, run)
        except RuntimeError:
            with self._lock:
                self._present -= 1
            raise
        # Not `asyncio.timeout`, which asks for the current task: a request that was started eagerly has none. Nothing
        # signals that a client has left.
        waiting, end = asyncio.wrap_future(future), perf_counter() + ANSWER_SECONDS
        try:
            while not waiting.done():
                context.check()
                if self._closing.is_set():
                    raise UnavailableError("the service is shutting down")
                if (left := end - perf_counter()) <= 0:
                    raise _no_answer()
                await asyncio.wait((waiting,), timeout=min(left, _POLL_SECONDS))
        except BaseException:
            expired.set()
            waiting.add_done_callback(lambda ended: _forget(ended, abandoned))
            if future.cancel():
                with self._lock:
                    self._present -= 1
            raise
        return waiting.result()

    def shut_down(self) -> None:
        """Take no more work."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _no_answer() -> DeadlineError:
    return DeadlineError(
        f"storage did not answer within {ANSWER_SECONDS:g} seconds, or there was too much to read", limit=ANSWER_SECONDS
    )


def _forget(ended: asyncio.Future[Result], abandoned: Callable[[], None]) -> None:
    """Retrieve the error of abandoned work, so that asyncio does not log it as never retrieved."""
    if not ended.cancelled():
        ended.exception()
    abandoned()


class StorageOfRoots:
    """The threads of all roots, by the places that requests name."""

    def __init__(self, roots: Sequence[str], closing: asyncio.Event) -> None:
        self._prefixes = sorted({_plain(root).rstrip("/") for root in roots}, key=len, reverse=True)
        # A path may lead below a root by a link; a URL that is below none is refused without being asked.
        self._plans = {prefix: StorageThreads("plan", closing) for prefix in (*self._prefixes, "")}
        self._records = {prefix: StorageThreads("record", closing) for prefix in (*self._prefixes, "")}

    def plans(self, place: str) -> StorageThreads:
        """Return the threads that read headers and plan."""
        return self._plans[self._prefix_of(place)]

    def records(self, place: str) -> StorageThreads:
        """Return the threads that inspect a destination."""
        return self._records[self._prefix_of(place)]

    def _prefix_of(self, place: str) -> str:
        plain = _plain(place)
        return next((prefix for prefix in self._prefixes if plain.startswith(f"{prefix}/")), "")

    def shut_down(self) -> None:
        """Take no more work."""
        for threads in (*self._plans.values(), *self._records.values()):
            threads.shut_down()


def _plain(place: str) -> str:
    scheme, separator, rest = place.partition("://")
    return f"{scheme.lower()}{separator}{rest}" if separator else place


_log = logging.getLogger("uvicorn.error")

_RESERVED_AT_ONCE = 1 << 20


class PlanMemory:
    """What a plan holds of the memory budget: asked for in threads, given back on the event loop.

    All plans together hold at most half of the budget, and none waits for memory: requests with tensors, which need
    little and end soon, find the other half.
    """

    def __init__(self, jobs: CheckpointJobs, budget: MemoryBudget) -> None:
        self._jobs, self._share = jobs, budget.budget // 2
        self._reservation = Reservation(budget)
        self._loop = asyncio.get_running_loop()
        self._used = 0

    def reserve(self, byte_count: int) -> None:
        """Hold more. Not called on the event loop. Raises LimitError, OverloadedError."""
        self._used += byte_count
        missing = self._used - self._reservation.held
        if missing > 0:
            asyncio.run_coroutine_threadsafe(self._grow(max(missing, _RESERVED_AT_ONCE)), self._loop).result()

    async def _grow(self, byte_count: int) -> None:
        if self._used > self._share:
            raise LimitError(
                f"the plan needs more than {self._share} bytes of memory, half of the memory budget: convert a "
                "checkpoint with so many tensors with the command `requant checkpoint`",
                limit=self._share,
            )
        if self._jobs.bytes_of_plans + byte_count > self._share or not self._reservation.try_grow(byte_count):
            raise OverloadedError("the memory for plans is in use by those of other checkpoints")
        self._jobs.numbers.add(Shared.PLAN_BYTES, byte_count)

    def give_back(self) -> None:
        """Give back all that is held. Called in any thread."""
        # The loop is closed at the end of the process.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._shrink)

    def _shrink(self) -> None:
        self._jobs.numbers.add(Shared.PLAN_BYTES, -self._reservation.held)
        self._reservation.shrink(self._reservation.held)


class CheckpointJobs:
    """`max_jobs`: how many jobs run at a time in all workers, whose `numbers` these are; `threads`: of each job.

    `closing`: set when the service ends. Raises ParameterError for a root that cannot be one.
    """

    def __init__(
        self, roots: list[str], max_jobs: int, threads: int, closing: asyncio.Event, numbers: SharedNumbers
    ) -> None:
        self.roots = Roots(roots)
        self.threads = threads
        self.numbers = numbers
        self._max_jobs = max_jobs
        self._running: dict[str, ConversionJob] = {}
        self._preparing: Counter[str] = Counter()
        self._lock = Lock()
        # Names, headers and records are read here: storage may be slow, and the executor's threads are for tensors.
        self.storage = StorageOfRoots(roots, closing)

    @property
    def running(self) -> int:
        """The number of jobs that run in this process."""
        return len(self._running)

    @property
    def bytes_of_plans(self) -> int:
        """The memory that plans hold, in all workers."""
        return self.numbers.total(Shared.PLAN_BYTES)

    def job(self, destination: str) -> ConversionJob | None:
        """Return the job that runs here for a destination."""
        return self._running.get(destination)

    @contextmanager
    def place_for(self, destination: str) -> Iterator[None]:
        """Hold the place of a destination's job while it is prepared and started. Raises OverloadedError."""
        with self._lock, self.numbers.lock():
            others = self.numbers.total(Shared.CHECKPOINT_JOBS) - self.numbers.own(Shared.CHECKPOINT_JOBS)
            if others + len({*self._running, *self._preparing, destination}) > self._max_jobs:
                raise OverloadedError(
                    f"{self._max_jobs} checkpoint jobs run here already (setting checkpoint_jobs); send the request "
                    "again when one has ended"
                )
            self._preparing[destination] += 1
            self._count()
        try:
            yield
        finally:
            with self._lock:
                self._preparing -= Counter([destination])
                self._count()

    def _count(self) -> None:
        """Tell the other workers how many places are taken here. Called with the lock."""
        self.numbers.put(Shared.CHECKPOINT_JOBS, len({*self._running, *self._preparing}))

    def start(
        self, destination: str, job: ConversionJob, log: str, release: Callable[[], None] = lambda: None
    ) -> ConversionJob:
        """Start a job, which has a place, unless one runs for the destination. Return the one that runs.

        `release` is called when the started job has ended.
        """

        def done(ended: ConversionJob) -> None:
            release()
            with self._lock:
                self._running.pop(destination, None)
                self._count()
            error = ended.record.error
            _log.info("Checkpoint job %s: %s.", log, ended.record.state if error is None else error.detail)

        with self._lock:
            if (before := self._running.get(destination)) is not None:
                return before
            self._running[destination] = job
        _log.info("Checkpoint job %s: started.", log)
        try:
            job.start(done)
        except RuntimeError:
            # No more threads: the place is another job's.
            with self._lock:
                self._running.pop(destination, None)
                self._count()
            raise
        return job

    def close(self, seconds: float) -> None:
        """Stop all jobs. What they have written stays, and the same requests continue them."""
        with self._lock:
            jobs = list(self._running.values())
        for job in jobs:
            job.stop(JobState.INTERRUPTED)
        for job in jobs:
            job.wait(seconds)
        self.storage.shut_down()
