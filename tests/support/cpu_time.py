"""CPU time of a call, for tests that bound what an input may cost."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time
from typing import Any

_ROUNDS = 3


def within_cpu_seconds(call: Callable[[], Any], most: float) -> bool:
    """Return whether this thread took less than `most` seconds of CPU time for `call`, in one of three times.

    Other threads of the process are not counted, nor, from the second time on, collections of garbage that earlier
    tests left: both have made a call of 0.01 s look like one of a second.
    """
    for again in range(_ROUNDS):
        if again:
            gc.collect()
        began = thread_time()
        call()
        if thread_time() - began < most:
            return True
    return False
