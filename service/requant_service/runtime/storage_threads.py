"""The threads in which requests about checkpoints wait for storage: those of one root never wait for those of another.

A server of storage that accepts connections and answers nothing holds each thread that asks it, for minutes. So every
root has threads of its own, and two kinds of them: for plans, which read much and compute, and for the small files by
which jobs are looked at and cancelled. Both have queues of limited length. A request is answered after a stated time,
whether or not its thread has come back; work whose request has ended stops at its next step.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from time import perf_counter, thread_time
from typing import TypeVar

from requant.errors import DeadlineError, OverloadedError, UnavailableError
from requant.errors.cancellation import cancellation_check
from requant_service.runtime.request_context import RequestContext, current_request

Result = TypeVar("Result")

ANSWER_SECONDS = 60.0
"""How long a request waits for storage and for what is computed from it."""
COMPUTE_SECONDS = 30.0
"""CPU time of one plan."""
THREADS = 2
MAX_QUEUED = 16
"""Of each kind and root."""
_SECONDS_BETWEEN_LOOKS = 0.25


class StorageThreads:
    """The threads of one kind for one root. `closing`: set when the service ends and nobody is to wait any more."""

    def __init__(self, name: str, closing: asyncio.Event) -> None:
        self._closing = closing
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix=f"checkpoint-{name}")
        self._lock = threading.Lock()
        self._present = 0

    async def run(self, work: Callable[[], Result], abandoned: Callable[[], None] = lambda: None) -> Result:
        """Return the result of `work`, which asks whether to go on (`requant.errors.cancellation`).

        `abandoned` is called once the work has ended, if by then nobody waits for it any more.

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
        # tells that a client has left.
        waiting, end = asyncio.wrap_future(future), perf_counter() + ANSWER_SECONDS
        try:
            while not waiting.done():
                context.check()
                if self._closing.is_set():
                    raise UnavailableError("the service is shutting down")
                if (left := end - perf_counter()) <= 0:
                    raise _no_answer()
                await asyncio.wait((waiting,), timeout=min(left, _SECONDS_BETWEEN_LOOKS))
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
    """Look at an error that nobody waits for any more, so that it is not logged as one that was never seen."""
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
        """Return the threads that look at a destination."""
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
