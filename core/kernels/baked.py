"""Kernels that were compiled when the image was built: baked for named CPU levels, chosen and copied at start.

numba's cache is keyed by the CPU's name and features, so one that was made on another machine is silently not used
unless both are pinned; and numba wants to write to its cache even if it only reads, which a read-only image forbids
(spec/service.md 2.6). So `python -m core.kernels.baked DIRECTORY` compiles for each level into a directory of its
own, and a start copies the directory of this CPU's level to NUMBA_CACHE_DIR.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from llvmlite import binding

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

LEVELS: dict[str, tuple[str, ...]] = {
    # What products of bytes and tables of bytes ask for: Ice Lake, Zen 4 and what came after them.
    "x86-64-v4+vbmi+vnni": (*_V4, "avx512vbmi", "avx512vnni"),
    "x86-64-v4": _V4,
    "x86-64-v3": _V3,
}
"""The CPU levels that are baked, best first, with the features that each one has. The name of the CPU, as LLVM knows
it, is what comes before a plus."""

_CACHE = "NUMBA_CACHE_DIR"


def _pinned(level: str) -> dict[str, str]:
    """Return the environment in which numba compiles for `level`, whatever the machine has beyond it."""
    features = ",".join(f"+{feature}" for feature in LEVELS[level])
    return {"NUMBA_CPU_NAME": level.partition("+")[0], "NUMBA_CPU_FEATURES": features}


def bake(directory: Path) -> None:
    """Compile every kernel for each level into `directory`/<level>. Raise CalledProcessError if one cannot be."""
    compile_all = "from core.warmup import compile_kernels; compile_kernels()"
    for level in LEVELS:
        environment = {**os.environ, **_pinned(level), _CACHE: str(directory / level)}
        subprocess.run([sys.executable, "-c", compile_all], env=environment, check=True)


def use_baked(directory: Path, cache: Path) -> str | None:
    """Make numba use, from `cache`, the kernels baked in `directory` for the best level that this CPU has.

    Call it before numba is imported. Return the level, or None where nothing was done: the CPU has no baked level, or
    NUMBA_CPU_NAME is set already. Then the kernels are compiled at start.
    """
    if "NUMBA_CPU_NAME" in os.environ:
        return None
    found = binding.get_host_cpu_features()
    for level, features in LEVELS.items():
        baked = directory / level
        if all(found.get(feature, False) for feature in features) and baked.is_dir():
            shutil.copytree(baked, cache, dirs_exist_ok=True)
            os.environ.update({**_pinned(level), _CACHE: str(cache)})
            return level
    return None


if __name__ == "__main__":
    bake(Path(sys.argv[1]))
