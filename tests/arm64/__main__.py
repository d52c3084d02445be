"""`python -m tests.arm64 DIRECTORY`: what a 64-bit ARM machine gives, by kernels that are cross-compiled here.

`tests/arm64/install` makes the machine. Each level gets its kernels in DIRECTORY/kernels, repeats the self-test, writes
the digests of all conversions, which are compared with those of this machine, and runs a sample of half of the tests.
With REQUANT_EXHAUSTIVE=1, as in continuous integration, each day has one level.
As many programs run side by side as there are CPUs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from requant.kernels.jit.bake import bake
from requant.kernels.jit.baked import pinned
from requant.kernels.jit.cache_directory import CACHE_VARIABLE
from requant.kernels.jit.target import HOST_MACHINE
from tests.support.cases import EXHAUSTIVE, OF_THE_DAY

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "tests/arm64/python"

# The levels, and the CPU with the same vectors that QEMU knows.
_ALL = (("neoverse-n1", "neoverse-n1"), ("neoverse-v2", "neoverse-n2"))
CPUS = dict(_ALL[OF_THE_DAY % len(_ALL) :][:1] if EXHAUSTIVE else _ALL)

PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.arm64.sample")

TESTS = {
    "neoverse-n1": {
        "vectors": ("convert/test_vectors.py", "operators/test_vectors.py"),
        "requantize": ("convert/test_requantize.py", "kernels/test_requantize.py"),
        "blocks": ("convert/blocks",),
    },
    "neoverse-v2": {
        "small floats": ("convert/test_small_floats.py", "convert/test_small_float_storage.py"),
        "integer": ("integer",),
        "calibration": ("calibration/methods",),
    },
}


@dataclass(frozen=True)
class Job:
    """A program, and what it is run for."""

    name: str
    command: Sequence[str | Path]
    environment: Mapping[str, str] = field(default_factory=dict)
    lines: int = 1

    def run(self) -> bool:
        """Print the last lines of what it says, or all if it fails. Return whether it succeeds."""
        began = monotonic()
        # Samples: all inputs would take hours here.
        environment = {name: value for name, value in os.environ.items() if name != "REQUANT_EXHAUSTIVE"}
        ran = subprocess.run(
            [str(each) for each in self.command],
            cwd=ROOT,
            env={**environment, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = ran.stdout.splitlines()
        shown = "\n  ".join(said if ran.returncode else said[-self.lines :])
        print(f"{self.name} ({monotonic() - began:.0f} s):\n  {shown}", flush=True)
        return ran.returncode == 0


def jobs(directory: Path) -> list[Job]:
    """Return what is run, the longest first."""
    kernels, own = directory / "kernels", directory / f"{HOST_MACHINE}.txt"
    # What only the digests and tests import takes as long as they do; so each level has one process for either.
    known = [
        Job(
            f"{level}, self-test and digests",
            (PYTHON, "-m", "tests.digests.baked", kernels, level, directory / f"{level}.txt"),
            # It finds the level by itself, as a service does.
            {"QEMU_CPU": cpu},
            lines=2,
        )
        for level, cpu in CPUS.items()
    ]
    tests = [
        Job(
            f"{level}, {', '.join(TESTS[level])}",
            (PYTHON, *PYTEST, *(f"tests/core/{path}" for paths in TESTS[level].values() for path in paths)),
            {
                "QEMU_CPU": cpu,
                **pinned(level),
                CACHE_VARIABLE: str(kernels / level),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
        )
        for level, cpu in CPUS.items()
    ]
    return [*known, *tests, Job(f"{HOST_MACHINE}, digests", (sys.executable, "-m", "tests.digests", "--write", own))]


def main(directory: Path) -> int:
    """Return 1 if anything fails or a digest differs."""
    began = monotonic()
    with ThreadPoolExecutor(len(CPUS)) as side_by_side:
        list(side_by_side.map(lambda level: bake(directory / "kernels", "aarch64", (level,)), CPUS))
    print(f"kernels of {' and '.join(CPUS)} ({monotonic() - began:.0f} s)", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as side_by_side:
        succeeded = all(list(side_by_side.map(Job.run, jobs(directory))))
    files = [directory / f"{name}.txt" for name in (HOST_MACHINE, *CPUS)]
    compared = subprocess.run([sys.executable, "-m", "tests.digests", "--compare", *map(str, files)], cwd=ROOT)
    print(f"{monotonic() - began:.0f} s")
    return 0 if succeeded and compared.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
