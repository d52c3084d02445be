"""`python -m core.kernels.jit.compile_worker`: compile kernels for another process, into the cache.

Each line on stdin describes a kernel (`Kernel.description`); an empty line is the answer when it is in the cache. Ends
with its input, and so with the process that asks.
"""

from __future__ import annotations

import os
import signal
import sys

from core.kernels.jit import warmup  # noqa: F401  # for all kernels
from core.kernels.jit.jit import all_kernels

# Requests that the other process answers meanwhile go first.
_NICENESS = 10


def main() -> None:
    """Compile what is asked for."""
    # Ctrl-C reaches every process of a terminal; this one ends with its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    kernels = {each.description: each for each in all_kernels()}
    for line in sys.stdin:
        kernels[line.rstrip("\n")].compile()
        sys.stdout.write("\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
