"""`python -m core.kernels.jit.bake DIRECTORY`: compile the kernels for each CPU level, into a directory of its own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from core.kernels.jit.baked import LEVELS, pinned
from core.kernels.jit.cache_directory import CACHE_VARIABLE
from core.kernels.jit.compilation import reporting
from core.kernels.jit.warmup import compile_kernels

_BAKE = "import sys; from core.kernels.jit.bake import compile_level; compile_level(sys.argv[1])"


def compile_level(level: str) -> None:
    """Compile every kernel for `level`, which this process was pinned to. Write how many there are to stdout, and to
    stderr, now and then, how many are done."""
    sys.stdout.write(f"{compile_kernels(reporting(level))}\n")


def bake(directory: Path) -> None:
    """Compile every kernel for each level into `directory`/<level>.

    Raise CalledProcessError if one cannot be compiled, and RuntimeError if one was not written.
    """

    def bake_level(level: str) -> None:
        environment = {**os.environ, **pinned(level), CACHE_VARIABLE: str(directory / level)}
        command = [sys.executable, "-c", _BAKE, level]
        run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        compiled, written = int(run.stdout), sum(1 for _ in (directory / level).rglob("*.kernel"))
        if written < compiled:
            raise RuntimeError(f"{level}: of {compiled} compiled kernels {written} were written to {directory}")

    directory.mkdir(parents=True, exist_ok=True)
    if not LEVELS:
        sys.stderr.write(f"No level is known for {platform.machine()}: kernels will be compiled at each start.\n")
    for level in LEVELS:
        bake_level(level)


if __name__ == "__main__":
    bake(Path(sys.argv[1]))
