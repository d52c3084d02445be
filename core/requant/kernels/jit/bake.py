"""`python -m requant.kernels.jit.bake DIRECTORY`: compile the kernels for each CPU level, into a directory of its own.

With `--machine aarch64` or `--machine x86_64` for those of that machine, whichever this one is.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from requant.kernels.jit.baked import LEVELS_BY_MACHINE, pinned
from requant.kernels.jit.cache_directory import CACHE_VARIABLE
from requant.kernels.jit.compilation import reporting
from requant.kernels.jit.jit import all_kernels
from requant.kernels.jit.target import HOST_MACHINE, MACHINE_VARIABLE, machine_named
from requant.kernels.jit.warmup import compile_kernels

_BAKE = "import sys; from requant.kernels.jit.bake import compile_level; compile_level(sys.argv[1])"


def compile_level(level: str) -> None:
    """Compile every kernel for `level`, which this process was pinned to. Write to stdout how many files that makes,
    and to stderr, now and then, how many kernels are done."""
    compile_kernels(reporting(level))
    sys.stdout.write(f"{sum(each.specialisations for each in all_kernels())}\n")


def bake(directory: Path, machine: str = HOST_MACHINE, levels: Sequence[str] = ()) -> None:
    """Compile every kernel for each of `machine`'s levels, or those that are given, into `directory`/<level>.

    Raise CalledProcessError if one cannot be compiled, and RuntimeError if one was not written.
    """

    def bake_level(level: str) -> None:
        target = {**pinned(level), MACHINE_VARIABLE: machine, CACHE_VARIABLE: str(directory / level)}
        command = [sys.executable, "-c", _BAKE, level]
        run = subprocess.run(command, env={**os.environ, **target}, check=True, stdout=subprocess.PIPE, text=True)
        expected, written = int(run.stdout), sum(1 for _ in (directory / level).rglob("*.kernel"))
        if written < expected:
            raise RuntimeError(f"{level}: of {expected} files of machine code {written} were written to {directory}")

    directory.mkdir(parents=True, exist_ok=True)
    if machine not in LEVELS_BY_MACHINE:
        sys.stderr.write(f"No level is known for {machine}: kernels will be compiled at each start.\n")
    for level in levels or LEVELS_BY_MACHINE.get(machine, ()):
        bake_level(level)


def main(arguments: Sequence[str]) -> None:
    """Bake what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m requant.kernels.jit.bake", description="Compile all kernels.")
    parser.add_argument("directory", type=Path, help="where each level gets a directory")
    parser.add_argument("--machine", type=machine_named, default=HOST_MACHINE, help="default: this one, %(default)s")
    parser.add_argument("--levels", nargs="+", default=(), metavar="LEVEL", help="default: all that the machine has")
    given = parser.parse_args(arguments)
    if unknown := set(given.levels) - LEVELS_BY_MACHINE.get(given.machine, {}).keys():
        parser.error(f"{given.machine} has no level {', '.join(sorted(unknown))}")
    bake(given.directory, given.machine, given.levels)


if __name__ == "__main__":
    main(sys.argv[1:])
