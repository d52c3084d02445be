"""The commands that users run: `requant checkpoint quantize`, `dequantize` and `repack`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.checkpoint.model import IGNORE

IGNORED = tuple(option for entry in ("none", *IGNORE) for option in ("--ignore", entry))
"""The options that leave out what the other programs here leave out."""


def convert(action: str, source: Path, destination: Path, threads: int, *options: str) -> list[str]:
    """Return the command that converts a checkpoint."""
    command = [sys.executable, "-m", "requant", "checkpoint", action, str(source), str(destination)]
    return [*command, *options, "--threads", str(threads), "--progress", "none"]


def quantize(source: Path, destination: Path, scheme: str, threads: int, *options: str) -> list[str]:
    """Return the command that quantizes a checkpoint as the other programs here do."""
    return convert("quantize", source, destination, threads, "--scheme", scheme, *IGNORED, *options)
