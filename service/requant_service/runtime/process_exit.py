"""The end of the process, within its stated time, whatever its threads are doing.

Nothing can interrupt a thread that compiles a kernel or works on a tensor. Python waits at its end for those of an
executor, and takes the interpreter away from under the others while native code runs in them, which may crash. So the
process is ended without either when it has to be.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import NoReturn

_log = logging.getLogger("uvicorn.error")

PREPARING_THREAD = "kernels"
"""The name of the threads that load or compile kernels. They are daemons: Python does not wait for them."""


def kernels_are_being_prepared() -> bool:
    """Whether a thread loads or compiles kernels, so that Python cannot end in good order."""
    return any(thread.name == PREPARING_THREAD for thread in threading.enumerate())


def end_process(code: int) -> NoReturn:
    """End the process immediately, after flushing the log."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


class Deadline:
    """Ends the process when a stated time has passed, unless it has ended before. The earliest time holds."""

    def __init__(self) -> None:
        # A signal handler may put into this queue. It could not start a thread: a lock that it needs may be held.
        self._deadlines: SimpleQueue[float] = SimpleQueue()
        threading.Thread(target=self._watch, name="deadline", daemon=True).start()

    def end_within(self, seconds: float) -> None:
        """State a time, from now."""
        self._deadlines.put(monotonic() + seconds)

    def _watch(self) -> None:
        earliest = self._deadlines.get()
        with suppress(Empty):
            while True:
                remaining = max(0.0, earliest - monotonic())
                earliest = min(earliest, self._deadlines.get(timeout=remaining))
        _log.warning("Shutdown timed out; unfinished work was abandoned.")
        end_process(0)
