"""`python -m requant.kernels.jit.compile_worker PARENT`: compile kernels for the process PARENT, into the cache.

Each line on stdin is the description of a kernel (`Kernel.description`). The reply is an empty line, when the kernel is
in the cache. An empty line on stdin lowers the worker's priority, for good: only root could raise it again. The worker
ends with its input, and with the process that started it, whatever it does at that moment, and without a word.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from queue import SimpleQueue

# Requests that are served meanwhile, and other work on the machine, go first.
_NICENESS = 10
# linux/prctl.h.
_PR_SET_PDEATHSIG = 1


def _end_with_parent(parent: int) -> None:
    """Let this process end with `parent`, which has started it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before that
        os._exit(0)


def _receive(requested: SimpleQueue[str]) -> None:
    """Queue what is requested, and end the process with its input: where no signal does, and before one could."""
    for line in sys.stdin:
        requested.put(line.rstrip("\n"))
    os._exit(0)


def main() -> None:
    """Compile the kernels that are requested."""
    _end_with_parent(int(sys.argv[1]))
    requested: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_receive, args=(requested,), daemon=True).start()
    # Takes about a second, in which the parent may end.
    from requant.kernels.jit.environment import read_environment

    read_environment()
    from requant.kernels.jit import warmup  # noqa: F401  # for all kernels
    from requant.kernels.jit.jit import all_kernels

    kernels = {each.description: each for each in all_kernels()}
    while True:
        description = requested.get()
        if not description:
            os.nice(_NICENESS)
            continue
        kernels[description].compile()
        try:
            sys.stdout.write("\n")
            sys.stdout.flush()
        except BrokenPipeError:
            os._exit(0)


if __name__ == "__main__":
    main()
