"""Where a piece of work runs: at once when it is light, in the service's own threads when it is not.

The event loop must never wait for a tensor, and a small tensor must not wait for a change of thread, which costs more
than its arithmetic. There are two kinds of heavy work. Arrays (kernels, base64, large copies) release the GIL, so they
have as many threads as there are CPUs. Texts (JSON, types, plans, multipliers) are Python and hold it, so more than one
thread would gain nothing: they have one of their own, and however long that is busy, the threads of arrays go on.

A large tensor is worked through in pieces. Those of different requests take turns in the threads, so that a giant
request leaves room for the others, and those of one request run side by side when the threads have nothing else to do.
Modules are texts that take up to seconds; they have another one, so that a type never waits for a module.

No piece is begun for a client that has left or a request whose time is over, and long work checks between its steps
(`requant.errors.cancellation`). Each kind of thread has a queue of limited length; a request that finds it full is
refused before anything was done for it, and one that was let in is not refused later.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Generator, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial
from math import inf
from time import perf_counter, thread_time
from types import coroutine
from typing import Any, TypeVar

from requant.errors import OverloadedError
from requant.errors.cancellation import cancellation_check
from requant_service.runtime.request_context import RequestContext, current_request
from requant_service.runtime.shared_numbers import Shared, SharedNumbers

Result = TypeVar("Result")

# What reading, planning and printing a character of a type costs, in bytes of tensor: 0.8 microseconds where scales are
# short and each has a multiplier, and 0.003. `python -m tests.load.inline_work` measures what is left to the loop.
_BYTES_PER_CHARACTER = 256
# Tokens of JSON that are read in the time of a character.
TOKENS_PER_CHARACTER = 8

# How many requests may wait for the thread of modules, each of which may take seconds.
_MAX_MODULES = 16

# Work of a measured kind that is expected to take no longer runs on the loop: about what a change of thread costs.
_INLINE_SECONDS = 200e-6
# Below this size the time is mostly overhead, and no measure of the pace.
_MIN_SAMPLE_BYTES = 16 << 10
# The weight of a piece slower than expected, which may just have met cold memory. A faster one sets the pace.
_SLOWER_WEIGHT = 0.1

# Threads of each kind while kernels are compiled: as many requests can wait for theirs.
_WAITING_THREADS = 64

# How long one thread may keep the GIL from the others. Python's own 5 ms would delay everything on the loop.
_SWITCH_SECONDS = 0.5e-3


class _Pool:
    """Threads of one kind, and how many pieces of work wait for them or are under way, in all workers together."""

    def __init__(self, name: str, threads: int, longest_queue: int, numbers: SharedNumbers, present: Shared) -> None:
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.waiting: ThreadPoolExecutor | None = None
        self._name = name
        self._max_present = numbers.workers * threads + longest_queue
        self._numbers = numbers
        self._present = present
        self._lock = threading.Lock()

    def submit(self, context: RequestContext, run: Callable[[], Result]) -> Future[Result]:
        """Queue work. Raise OverloadedError if the queue is full, unless the request has had a place before."""
        present = self._numbers.total(self._present)
        if present >= self._max_present and self._name not in context.queues:
            raise OverloadedError(f"{present} requests wait for the threads of {self._name} already")
        future = (self.waiting or self.executor).submit(copy_context().run, run)
        context.queues.add(self._name)
        self._count(1)
        # Done, failed, or cancelled before it began.
        future.add_done_callback(lambda _: self._count(-1))
        return future

    def _count(self, change: int) -> None:
        with self._lock:
            self._numbers.add(self._present, change)


class Executor:
    """The service's threads, and what decides whether work is done without them.

    `seconds` of CPU are what they may spend on one request, `longest_queue` how many requests may wait for one kind in
    all workers, whose `numbers` these are.
    """

    def __init__(
        self,
        threads: int,
        inline_bytes: int,
        seconds: float = inf,
        longest_queue: int = 256,
        numbers: SharedNumbers | None = None,
    ) -> None:
        shared = SharedNumbers() if numbers is None else numbers
        self._arrays = _Pool("arrays", threads, longest_queue, shared, Shared.QUEUED_ARRAYS)
        self._texts = _Pool("texts", 1, longest_queue, shared, Shared.QUEUED_TEXTS)
        self._modules = _Pool("modules", 1, min(longest_queue, _MAX_MODULES), shared, Shared.QUEUED_MODULES)
        self._pools = (self._arrays, self._texts, self._modules)
        self._threads = threads
        self._may_wait = False
        self._inline_bytes = inline_bytes
        self._seconds = seconds
        self._paces: dict[Hashable, float] = {}

    def start(self) -> None:
        """Shorten the switch interval, for the sake of the loop."""
        sys.setswitchinterval(_SWITCH_SECONDS)

    def use_compile_threads(self) -> None:
        """Do all work in threads, of which there are many, until `use_work_threads`.

        Work may then wait for a kernel that is being compiled, without delaying the loop or work with other kernels.
        """
        self._may_wait = True
        for pool in self._pools:
            pool.waiting = ThreadPoolExecutor(_WAITING_THREADS, thread_name_prefix="waiting")

    def use_work_threads(self) -> None:
        """Do light work on the loop, and heavy work in as many threads as there are CPUs."""
        self._may_wait = False
        for pool in self._pools:
            if pool.waiting is not None:
                # Its threads end after the work that they have.
                pool.waiting.shutdown(wait=False)
                pool.waiting = None

    def run_array(
        self, byte_count: int, work: Callable[[], Result], kind: Hashable = None
    ) -> Coroutine[Any, Any, Result]:
        """Return the result of `work` on arrays of about `byte_count` bytes.

        `kind`: work of the same kind costs about the same time per byte, and is measured.

        Raises (as all that follow):
            OverloadedError: if too many requests wait for a thread.
            DeadlineError: if the request has used up its seconds of CPU.
        """
        return self._run(self._arrays, byte_count, work, kind)

    def run_text(self, characters: int, work: Callable[[], Result]) -> Coroutine[Any, Any, Result]:
        """Return the result of `work` on texts of about `characters` characters."""
        return self._run(self._texts, characters * _BYTES_PER_CHARACTER, work)

    def run_module(self, work: Callable[[], Result]) -> Coroutine[Any, Any, Result]:
        """Return the result of `work` on a module."""
        # Never inline: the first one imports what modules need, and how long one takes is not known beforehand.
        return self._run(self._modules, self._inline_bytes + 1, work)

    async def _run(self, pool: _Pool, byte_count: int, work: Callable[[], Result], kind: Hashable = None) -> Result:
        context = current_request.get(None) or RequestContext()
        if self._is_light(byte_count, kind):
            return self._timed(context, byte_count, work, kind, _clock_for(byte_count))
        queued_at = perf_counter()

        def run() -> Result:
            context.waited += perf_counter() - queued_at
            return self._timed(context, byte_count, work, kind)

        return await asyncio.wrap_future(pool.submit(context, run))

    def _is_light(self, byte_count: int, kind: Hashable) -> bool:
        """Return whether work is done on the event loop: by what its kind took before, else by its size."""
        if self._may_wait:
            return False
        pace = self._paces.get(kind)
        return byte_count <= self._inline_bytes if pace is None else pace * byte_count <= _INLINE_SECONDS

    async def run_pieces(
        self, kind: Hashable, works: AsyncIterable[tuple[int, Callable[[], Result]]]
    ) -> AsyncIterator[Result]:
        """Yield the results of `works`, each with the bytes that it is about, in their order.

        A piece is light or not by what pieces of its `kind` took before. Heavy ones run side by side, as many as there
        are threads; so that many are taken from `works` before the first of them is done. An error is raised in the
        place of its piece.
        """
        context = current_request.get(None) or RequestContext()
        under_way: deque[Future[Result]] = deque()
        async for byte_count, work in works:
            if self._is_light(byte_count, kind):
                while under_way:
                    yield await asyncio.wrap_future(under_way.popleft())
                yield self._timed(context, byte_count, work, kind, _clock_for(byte_count))
                continue
            run = partial(self._timed, context, byte_count, work, kind)
            under_way.append(self._arrays.submit(context, run))
            if len(under_way) > self._threads:
                yield await asyncio.wrap_future(under_way.popleft())
        while under_way:
            yield await asyncio.wrap_future(under_way.popleft())

    def _timed(
        self,
        context: RequestContext,
        byte_count: int,
        work: Callable[[], Result],
        kind: Hashable,
        clock: Callable[[], float] = thread_time,
    ) -> Result:
        """Do the work, which may check for cancellation, and add its time to that of the request: CPU by `clock`."""
        limit = self._seconds
        context.check(0.0, limit)
        begun, computing = perf_counter(), clock()
        token = cancellation_check.set(lambda: context.check(clock() - computing, limit))
        try:
            result = work()
        finally:
            cancellation_check.reset(token)
            seconds = clock() - computing
            context.worked += perf_counter() - begun
            context.computed += seconds
        if kind is not None and byte_count >= _MIN_SAMPLE_BYTES:
            pace = seconds / byte_count
            known = self._paces.get(kind, pace)
            self._paces[kind] = pace if pace < known else known + _SLOWER_WEIGHT * (pace - known)
        return result

    def shut_down(self) -> None:
        """Take no more work, and let the threads finish what they have."""
        for pool in self._pools:
            for each in (pool.executor, pool.waiting):
                if each is not None:
                    each.shutdown(wait=False, cancel_futures=True)


def _clock_for(byte_count: int) -> Callable[[], float]:
    """Return what tells the CPU time of light work. To ask the system takes as long as the smallest work itself."""
    return perf_counter if byte_count < _MIN_SAMPLE_BYTES else thread_time


def start_eagerly(
    work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, around: Context | None = None
) -> asyncio.Task[None] | None:
    """Run a request in a context of its own until it waits. Return the task that continues it, None if it has ended.

    Its context is a copy of the one `around` it, by default the present one.

    What it raises before it waits is raised here. Until then there is no current task. Most requests end without ever
    waiting, and so take no task and no turn of the event loop, as with `eager_start` of Python 3.12's tasks
    (docs/architecture.md has what that saves).
    """
    context = copy_context() if around is None else around.copy()
    try:
        awaited = context.run(work.send, None)
    except StopIteration:
        return None
    return loop.create_task(_continued(work, awaited), context=context)


async def _continued(work: Coroutine[Any, Any, None], awaited: Any) -> None:
    # A coroutine of its own: from Python 3.12 on, tasks take no generators.
    await _rest(work, awaited)


@coroutine
def _rest(work: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    """Continue `work`, which waits for `awaited`: what it has yielded to its task."""
    try:
        while True:
            try:
                result = yield awaited
            except BaseException as error:  # such as CancelledError
                awaited = work.throw(error)
            else:
                awaited = work.send(result)
    except StopIteration:
        pass
