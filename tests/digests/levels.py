"""Digests of every level of x86-64 that this machine has, compared: `python -m tests.digests.levels DIRECTORY`.

A level is pinned by a CPU's name and its features: the name alone would leave numba the features of this machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from requant.kernels.jit.baked import LEVELS_BY_MACHINE, pinned
from requant.kernels.jit.host_features import host_features
from requant.kernels.jit.target import HOST_MACHINE


def main(directory: Path) -> int:
    """Make the digests of each level in a process of its own; return 1 if they differ."""
    if HOST_MACHINE != "x86_64":
        sys.stderr.write(f"These are levels of x86-64; this is {HOST_MACHINE}.\n")
        return 1
    files, has = [], host_features()
    for level, features in reversed(LEVELS_BY_MACHINE[HOST_MACHINE].items()):
        missing = [feature for feature in features if feature not in has]
        if missing:
            sys.stdout.write(f"{level} is skipped: this machine has no {', '.join(missing)}\n")
            continue
        files.append(directory / f"{level}.txt")
        environment = os.environ | pinned(level)
        for command in (["requant.kernels.jit.warmup"], ["tests.digests", "--write", str(files[-1])]):
            subprocess.run([sys.executable, "-m", *command], env=environment, check=True)
    command = [sys.executable, "-m", "tests.digests", "--compare", *map(str, files)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
