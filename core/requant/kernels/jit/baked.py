"""Kernels that were compiled beforehand: for named CPU levels, of which a start takes the best that its CPU has.

The container image has them in a directory of its own, a wheel beside the code (`make wheels`).
`requant.kernels.jit.bake` compiles each level into a directory, pinned to the level's name and features. A process that
reads them is not pinned: what is missing it compiles for its own CPU, as numba does with the functions of others.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from requant.kernels.jit.cache_directory import check_directory
from requant.kernels.jit.host_features import host_features
from requant.kernels.jit.target import TARGET_MACHINE

_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
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
        # Virtual machines that name no CPU; it has neither vectors of 256 bits nor fused steps.
        "x86-64-v2": _V2,
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

PACKAGED = Path(__file__).parents[2] / "machine_code"
"""Where a wheel has the kernels that it brings: a directory for each level."""


class Level(NamedTuple):
    """The kernels of a CPU level."""

    directory: Path
    cpu: str
    """Its name in LLVM."""
    features: str
    """As LLVM takes them: `+avx,+avx2`."""
    packaged: bool = False
    """Whether they came with the code: whoever can change them can change that, too."""


in_use: Level | None = None
"""What this process reads before it looks into its cache."""


def cpu_and_features(level: str) -> tuple[str, str]:
    """Return the name of a level's CPU and its features as LLVM takes them."""
    (features,) = (levels[level] for levels in LEVELS_BY_MACHINE.values() if level in levels)
    return level.partition("+")[0], ",".join(f"+{feature}" for feature in features)


def pinned(level: str) -> dict[str, str]:
    """Return the environment in which numba compiles for `level`, whatever the machine has beyond it."""
    return dict(zip(("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"), cpu_and_features(level), strict=True))


def use_baked(directory: Path) -> str | None:
    """Read machine code from the kernels baked in `directory` for the best level that this CPU has.

    Call it before any kernel is imported: they are chosen by the level's features. Return the level, or None where
    nothing was done: the CPU has no baked level, or NUMBA_CPU_NAME is set. Then the kernels come from the cache, or are
    compiled. Raise CacheDirectoryError if others could have changed what is in the directory.
    """
    global in_use
    if "NUMBA_CPU_NAME" in os.environ:
        return None
    packaged = directory == PACKAGED
    found = host_features()
    for level, features in LEVELS.items():
        baked = directory / level
        if found.issuperset(features) and baked.is_dir():
            in_use = Level(baked if packaged else check_directory(baked), *cpu_and_features(level), packaged=packaged)
            return level
    return None


def use_packaged() -> None:
    """Read machine code from the kernels that came with this package, if any did and no others are in use."""
    if in_use is None and PACKAGED.is_dir():
        use_baked(PACKAGED)
