"""Kernels that were compiled when the image was built: baked for named CPU levels, and chosen at start.

Machine code is cached for the CPU's name and features, so what was made on another machine is not used unless both are
pinned. So `python -m core.kernels.jit.baked DIRECTORY` compiles for each level into a directory of its own, and a start
reads from the one of its CPU's level. Nothing is written there then.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from llvmlite import binding

from core.kernels.jit.cache_directory import CACHE_VARIABLE, check_directory

_V3 = (
    "avx",
    "avx2",
    "bmi",
    "bmi2",
    "cx16",
    "f16c",
    "fma",
    "lzcnt",
    "movbe",
    "popcnt",
    "sahf",
    "sse4.2",
    "ssse3",
    "xsave",
)
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

_LEVELS_BY_MACHINE: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        # What products of bytes and tables of bytes ask for: Ice Lake, Zen 4 and what came after them.
        "x86-64-v4+vbmi+vnni": (*_V4, "avx512vbmi", "avx512vnni"),
        "x86-64-v4": _V4,
        "x86-64-v3": _V3,
    },
    # Every 64-bit ARM server has these.
    "aarch64": {"generic+neon": ("fp-armv8", "neon")},
}

LEVELS: dict[str, tuple[str, ...]] = _LEVELS_BY_MACHINE.get(platform.machine(), {})
"""The CPU levels that are baked on this machine, best first, with the features that each one has. The name of the CPU,
as LLVM knows it, is what comes before a plus."""

in_use: Path | None = None
"""The directory that this process reads machine code from before it looks into its cache."""

_BAKE = "import sys; from core.kernels.jit.baked import compile_level; compile_level(sys.argv[1])"
_KERNELS_PER_LINE = 20


def _pinned(level: str) -> dict[str, str]:
    """Return the environment in which numba compiles for `level`, whatever the machine has beyond it."""
    features = ",".join(f"+{feature}" for feature in LEVELS[level])
    return {"NUMBA_CPU_NAME": level.partition("+")[0], "NUMBA_CPU_FEATURES": features}


def compile_level(level: str) -> None:
    """Compile every kernel for `level`, which this process was pinned to. Write how many there are to stdout, and to
    stderr, now and then, how many are done."""
    from core.kernels.jit.warmup import compile_kernels

    began, line = time.monotonic(), 0

    def report(ready: int, total: int) -> None:
        nonlocal line
        if ready == total or ready // _KERNELS_PER_LINE > line:
            line = ready // _KERNELS_PER_LINE
            sys.stderr.write(f"{level}: {ready} of {total} kernels, {time.monotonic() - began:.0f} s\n")

    sys.stdout.write(f"{compile_kernels(report)}\n")


def bake(directory: Path) -> None:
    """Compile every kernel for each level into `directory`/<level>, the levels beside each other.

    Raise CalledProcessError if one cannot be compiled, and RuntimeError if one was not written.
    """

    def bake_level(level: str) -> None:
        environment = {**os.environ, **_pinned(level), CACHE_VARIABLE: str(directory / level)}
        command = [sys.executable, "-c", _BAKE, level]
        run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        compiled, written = int(run.stdout), sum(1 for _ in (directory / level).rglob("*.kernel"))
        if written < compiled:
            raise RuntimeError(f"{level}: of {compiled} compiled kernels {written} were written to {directory}")

    directory.mkdir(parents=True, exist_ok=True)
    if not LEVELS:
        sys.stderr.write(f"No level is known for {platform.machine()}: kernels will be compiled at each start.\n")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(bake_level, LEVELS):
            pass


def use_baked(directory: Path) -> str | None:
    """Read machine code from the kernels baked in `directory` for the best level that this CPU has.

    Call it before numba is imported. Return the level, or None where nothing was done: the CPU has no baked level, or
    NUMBA_CPU_NAME is set already. Then the kernels come from the cache, or are compiled. Raise CacheDirectoryError if
    others could have changed what is in the directory.
    """
    global in_use
    if "NUMBA_CPU_NAME" in os.environ:
        return None
    found = binding.get_host_cpu_features()
    for level, features in LEVELS.items():
        baked = directory / level
        if all(found.get(feature, False) for feature in features) and baked.is_dir():
            in_use = check_directory(baked)
            os.environ.update(_pinned(level))
            return level
    return None


if __name__ == "__main__":
    bake(Path(sys.argv[1]))
