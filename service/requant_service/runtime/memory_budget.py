"""The memory budget: a request reserves what it will need, waits a moment if that is not available, or is refused.

Counting connections would not help: one request may need a thousand times what another does. So there is a budget of
bytes. A request that does not fit waits in line, first come first served and not for long; when the line is full or the
wait is over, it is refused with 503 and `Retry-After`, which costs a loaded service next to nothing.

Small amounts have a share of their own beside the budget and never wait in line: clients that do not read their replies
delay those with large tensors, and not the others.

Worker processes share the budget and the limit of the line. Each has its own part of the line, and while it is not
empty no worker lets a request pass it by. What another worker gives back is noticed within milliseconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType

from requant.errors import LimitError, OverloadedError
from requant_service.runtime.shared_numbers import Shared, SharedNumbers

# What counts as small, and as large.
SMALL_BYTES = 64 << 10
_LARGE_BYTES = 1 << 20
# How often a worker whose requests wait looks whether another has given memory back.
_LOOK_SECONDS = 0.005


class MemoryBudget:
    """A budget of bytes. All methods are called on the event loop, so nothing here is locked.

    `refused` is called with the reason of each refusal: `line_full`, `waited_too_long` or `too_large`. `small_share` is
    what amounts of at most `SMALL_BYTES` may take beyond the budget. `numbers`: those of the workers that share it.
    """

    def __init__(
        self,
        budget: int,
        longest_line: int,
        patience_seconds: float,
        refused: Callable[[str], None] = lambda reason: None,
        small_share: int = 0,
        numbers: SharedNumbers | None = None,
    ) -> None:
        self.budget = budget
        self.own_reserved = 0
        """What the requests of this process hold."""
        self._numbers = SharedNumbers() if numbers is None else numbers
        self._are_shared = self._numbers.are_shared
        self.workers = self._numbers.workers
        self._longest_line = longest_line
        self._patience_seconds = patience_seconds
        self._refused = refused
        self._small_share = small_share
        self._before_large: Callable[[int], None] = lambda _: None
        self._after_large: Callable[[int], None] = lambda _: None
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._looking: asyncio.TimerHandle | None = None

    @property
    def reserved(self) -> int:
        """What the requests of all workers hold."""
        return self._numbers.total(Shared.RESERVED_BYTES) if self._are_shared else self.own_reserved

    @property
    def waiting(self) -> int:
        """How many requests of this process wait in line."""
        return len(self._line)

    @property
    def wanted_elsewhere(self) -> int:
        """What a request at another worker waits for; 0: none does."""
        numbers = self._numbers
        return max(0, numbers.total(Shared.WANTED_BYTES) - numbers.own(Shared.WANTED_BYTES)) if self._are_shared else 0

    def _all_waiting(self) -> int:
        return self._numbers.total(Shared.WAITING_REQUESTS) if self._are_shared else len(self._line)

    def watch_large(self, before: Callable[[int], None], after: Callable[[int], None]) -> None:
        """Call `before` with each large amount once it is reserved, and `after` when one was given back."""
        self._before_large, self._after_large = before, after

    def check(self, byte_count: int) -> None:
        """Raise LimitError if the whole budget is less than that."""
        if byte_count > self.budget:
            self._refused("too_large")
            detail = f"the request needs {byte_count} bytes of memory; the service may use {self.budget} for all"
            raise LimitError(detail, limit=self.budget)

    def try_take(self, byte_count: int) -> bool:
        """Take `byte_count` bytes of the budget if they are free and no request waits. Return whether they were."""
        if self._small_share and byte_count <= SMALL_BYTES:
            # Workers that do so at the same time may exceed the share by what each of them takes.
            if self.reserved + byte_count > self.budget + self._small_share:
                return False
            self._change(byte_count)
            return True
        with self._numbers.lock():
            if self._all_waiting() or self.reserved + byte_count > self.budget:
                return False
            self._change(byte_count)
        self._granted(byte_count)
        return True

    def _change(self, byte_count: int) -> None:
        self.own_reserved += byte_count
        if self._are_shared:
            self._numbers.put(Shared.RESERVED_BYTES, self.own_reserved)

    def _granted(self, byte_count: int) -> None:
        if byte_count >= _LARGE_BYTES:
            self._before_large(byte_count)

    async def take(self, byte_count: int) -> None:
        """Take `byte_count` bytes of the budget. Raise OverloadedError if they do not come free in time."""
        if self.try_take(byte_count):
            return
        if (waiting := self._all_waiting()) >= self._longest_line:
            self._refused("line_full")
            raise OverloadedError(f"{waiting} requests wait for memory already")
        loop = asyncio.get_running_loop()
        place = (byte_count, loop.create_future())
        self._line.append(place)
        self._line_changed()
        # Not `asyncio.timeout`, which asks for the current task: a request that was started eagerly has none.
        expiry = loop.call_later(self._patience_seconds, _expire, place[1])
        try:
            await place[1]
        except BaseException as error:
            self._leave(place)
            if isinstance(error, TimeoutError):
                self._refused("waited_too_long")
                raise OverloadedError(
                    f"no memory came free within {self._patience_seconds} s; {self.reserved} bytes are in use"
                ) from None
            raise
        finally:
            expiry.cancel()

    def give_back(self, byte_count: int) -> None:
        """Give back what was taken."""
        self._change(-byte_count)
        if byte_count >= _LARGE_BYTES:
            self._after_large(byte_count)
        if self._line:
            self._admit()

    def _leave(self, place: tuple[int, asyncio.Future[None]]) -> None:
        """Give up a place in line, or what was granted in the very moment in which it was given up."""
        byte_count, granted = place
        if place in self._line:
            self._line.remove(place)
            self._line_changed()
        elif granted.done() and not granted.cancelled() and granted.exception() is None:
            self._change(-byte_count)
        self._admit()

    def _admit(self) -> None:
        """Let in whoever is first in line, as long as there is room."""
        while self._line:
            byte_count, granted = self._line[0]
            with self._numbers.lock():
                if not granted.done() and self.reserved + byte_count > self.budget:
                    return
                self._line.popleft()
                self._line_changed()
                if granted.done():
                    continue
                self._change(byte_count)
            self._granted(byte_count)
            granted.set_result(None)

    def _line_changed(self) -> None:
        """Tell other workers how many wait here, and look again soon if somebody does."""
        if self._are_shared:
            self._numbers.put(Shared.WAITING_REQUESTS, len(self._line))
            self._numbers.put(Shared.WANTED_BYTES, self._line[0][0] if self._line else 0)
            if self._line and self._looking is None:
                self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._looking = None
        self._admit()
        self._line_changed()


def _expire(granted: asyncio.Future[None]) -> None:
    """End the wait for a place that was not granted in time."""
    if not granted.done():
        granted.set_exception(TimeoutError())


class Reservation:
    """What one request holds of the budget. It grows as the request asks for more, and ends with it."""

    __slots__ = ("_budget", "held")

    def __init__(self, budget: MemoryBudget) -> None:
        self.held = 0
        self._budget = budget

    async def grow(self, byte_count: int) -> None:
        """Hold `byte_count` bytes more. Raise LimitError or OverloadedError."""
        budget = self._budget
        if self.held + byte_count > budget.budget:
            budget.check(self.held + byte_count)
        if not budget.try_take(byte_count):
            await budget.take(byte_count)
        self.held += byte_count

    def try_grow(self, byte_count: int) -> bool:
        """Hold `byte_count` bytes more if that is possible without a wait. Return whether it was."""
        had = self._budget.try_take(byte_count)
        self.held += byte_count * had
        return had

    def shrink(self, byte_count: int) -> None:
        """Hold `byte_count` bytes less."""
        self.held -= byte_count
        self._budget.give_back(byte_count)

    def end(self) -> None:
        """Hold nothing any more."""
        if self.held:
            self._budget.give_back(self.held)
            self.held = 0

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
