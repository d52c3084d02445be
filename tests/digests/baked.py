"""`python -m tests.digests.baked DIRECTORY LEVEL FILE`: load the kernels of DIRECTORY as a
service does, repeat every known answer with them, and write the digests of all conversions.

The CPU, or the one that QEMU imitates, has to be taken for one of LEVEL, and nothing may be compiled.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from requant.kernels.jit.baked import use_baked


def main(directory: Path, level: str, digests: Path) -> None:
    """Raise SelfTestError if an answer is wrong; exit with a message if another level is taken, or a kernel missing."""
    if (taken := use_baked(directory)) != level:
        sys.exit(f"this CPU is taken for one of {taken}, not of {level}")
    # They import numba, which reads the level once.
    from requant.kernels.jit.machine_code_cache import MachineCodeCache
    from requant.kernels.jit.warmup import start_compilation
    from requant.self_test.self_test import run_self_test
    from tests.digests.__main__ import write

    progress = start_compilation(0).progress()
    if progress.compiled < progress.total:
        sys.exit(f"of {progress.total} kernels {progress.compiled} were loaded")
    run_self_test()
    said = f"{platform.machine()}, {level}: {MachineCodeCache.loaded} specialisations loaded, self-test passed\n"
    sys.stdout.write(said)
    write(digests, only="")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
