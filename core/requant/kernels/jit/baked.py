"""Kernels that were compiled when the image was built: baked for named CPU levels, and chosen at start.

Machine code is cached for the CPU's name and features, so what was made on another machine is not used unless both are
pinned. So `requant.kernels.jit.bake` compiles for each level into a directory of its own, and a start reads from that
of its CPU's level. Nothing is written there then.
"""

from __future__ import annotations

import os
from pathlib import Path

from requant.kernels.jit.cache_directory import check_directory
from requant.kernels.jit.host_features import host_features
from requant.kernels.jit.target import TARGET_MACHINE

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

_NEON = ("fp-armv8", "neon")
_NEOVERSE_N1 = (*_NEON, "crc", "dotprod", "fullfp16", "lse", "rcpc", "rdm")

LEVELS_BY_MACHINE: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        # What products of bytes and tables of bytes ask for: Ice Lake, Zen 4 and what came after them.
        "x86-64-v4+vbmi+vnni": (*_V4, "avx512vbmi", "avx512vnni"),
        "x86-64-v4": _V4,
        "x86-64-v3": _V3,
    },
    "aarch64": {
        # Graviton4, Grace, Axion.
        "neoverse-v2": (*_NEOVERSE_N1, "bf16", "complxnum", "fp16fml", "i8mm", "jsconv", "sve", "sve2"),
        # Graviton2 and 3, Altra, and Apple's in a virtual machine.
        "neoverse-n1": _NEOVERSE_N1,
        # Every 64-bit ARM CPU.
        "generic+neon": _NEON,
    },
}
"""The CPU levels that are baked for each machine, best first, with the features that each one has. The name of the CPU,
as LLVM knows it, is what comes before a plus."""

LEVELS: dict[str, tuple[str, ...]] = LEVELS_BY_MACHINE.get(TARGET_MACHINE, {})
"""Those of the machine that kernels are compiled for."""

in_use: Path | None = None
"""The directory that this process reads machine code from before it looks into its cache."""


def pinned(level: str) -> dict[str, str]:
    """Return the environment in which numba compiles for `level`, whatever the machine has beyond it."""
    (features,) = (levels[level] for levels in LEVELS_BY_MACHINE.values() if level in levels)
    names = ",".join(f"+{feature}" for feature in features)
    return {"NUMBA_CPU_NAME": level.partition("+")[0], "NUMBA_CPU_FEATURES": names}


def use_baked(directory: Path) -> str | None:
    """Read machine code from the kernels baked in `directory` for the best level that this CPU has.

    Call it before numba is imported. Return the level, or None where nothing was done: the CPU has no baked level, or
    NUMBA_CPU_NAME is set already. Then the kernels come from the cache, or are compiled. Raise CacheDirectoryError if
    others could have changed what is in the directory.
    """
    global in_use
    if "NUMBA_CPU_NAME" in os.environ:
        return None
    found = host_features()
    for level, features in LEVELS.items():
        baked = directory / level
        if found.issuperset(features) and baked.is_dir():
            in_use = check_directory(baked)
            os.environ.update(pinned(level))
            return level
    return None
