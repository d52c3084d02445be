"""The command that users run: `requant checkpoint quantize`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.checkpoint.model import IGNORE


def quantize(source: Path, destination: Path, scheme: str, threads: int, *options: str) -> list[str]:
    """Return the command that quantizes a checkpoint as the other programs here do."""
    ignore = [option for entry in ("none", *IGNORE) for option in ("--ignore", entry)]
    command = [sys.executable, "-m", "requant", "checkpoint", "quantize", str(source), str(destination)]
    return [*command, "--scheme", scheme, *ignore, "--threads", str(threads), "--progress", "none", *options]
