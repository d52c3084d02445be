"""CPU time of a call, for tests that bound what an input may cost."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time
from typing import Any

_ROUNDS = 3


def least_cpu_seconds(call: Callable[[], Any]) -> float:
    """Return the least CPU time that this thread took for `call`, of three times.

    Other threads of the process and collections of garbage that earlier tests left are not counted: both have made a
    call of 0.01 s look like one of a second.
    """
    least = float("inf")
    for _ in range(_ROUNDS):
        gc.collect()
        began = thread_time()
        call()
        least = min(least, thread_time() - began)
    return least
