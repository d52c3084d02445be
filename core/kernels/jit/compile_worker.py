"""`python -m core.kernels.jit.compile_worker`: compile kernels for another process, into the cache.

Each line on stdin is the description of a kernel (`Kernel.description`). The reply is an empty line, when the kernel is
in the cache. The worker ends with its input, and thus with the process that started it.
"""

from __future__ import annotations

import os
import signal
import sys

from core.kernels.jit import warmup  # noqa: F401  # for all kernels
from core.kernels.jit.jit import all_kernels

# Requests that are served meanwhile go first.
_NICENESS = 10


def main() -> None:
    """Compile the kernels that are requested."""
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
