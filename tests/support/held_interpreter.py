"""How long a piece of work keeps the other threads of the process from running, in CPU time of its thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

_ROUNDS = 3
_TICK = 0.001


def longest_hold(work: Callable[[], Any]) -> float:
    """Return the most CPU seconds that `work` took in a thread between two turns of this one, the least of three runs.

    A C call that does not let go of the interpreter counts whole. What the machine does besides counts little: it is
    the CPU time of the thread that is looked at, not the clock.
    """
    return min(_hold(work) for _ in range(_ROUNDS))


def _hold(work: Callable[[], Any]) -> float:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)
        finished.set()
        end.wait(60)

    finished, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=run)
    thread.start()
    assert thread.ident is not None
    clock = time.pthread_getcpuclockid(thread.ident)
    # The thread may have held the interpreter since it began.
    before, longest = 0.0, 0.0
    while not finished.wait(_TICK):
        now = time.clock_gettime(clock)
        before, longest = now, max(longest, now - before)
    longest = max(longest, time.clock_gettime(clock) - before)
    end.set()
    thread.join()
    if failed:
        raise failed[0]
    return longest
