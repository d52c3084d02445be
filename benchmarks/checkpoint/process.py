"""A process from its start to its end: the time that passes, CPU time, and the most memory it had."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCES = os.pathsep.join(map(str, (ROOT, ROOT / "core", ROOT / "service")))
_USAGE = Path(__file__).with_name("usage.py")


@dataclass(frozen=True, slots=True)
class Usage:
    """`wall`: seconds until the output is on the disk, of which `syncing` after the end. `resident` in bytes."""

    wall: float
    cpu: float
    resident: int
    syncing: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def run(command: Sequence[str], threads: int, output: Path | None = None) -> Usage:
    """Run a command in so many threads, then bring its output to the disk. Raise RuntimeError if it fails."""
    environment = {**os.environ, "PYTHONPATH": SOURCES, "OMP_NUM_THREADS": str(threads), "PYTHONWARNINGS": "ignore"}
    # What is installed is compiled when it is; so is ours, by the first run.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(_USAGE), *command], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} was not measured:\n{done.stderr[-2000:]}")
    measured = json.loads(done.stdout)
    if measured["code"]:
        raise RuntimeError(f"{' '.join(command)} ended with {measured['code']}:\n{done.stderr[-2000:]}")
    begun = perf_counter()
    if output is not None:
        _sync(output)
    syncing = perf_counter() - begun
    return Usage(measured["wall"] + syncing, measured["cpu"], measured["resident"], syncing)


def _sync(folder: Path) -> None:
    """Wait until the files of a folder are on the disk."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
