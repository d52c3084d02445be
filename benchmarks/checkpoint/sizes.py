"""Time and memory against the size of a checkpoint, and of one file of it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.checkpoint import model
from benchmarks.checkpoint.command import quantize
from benchmarks.checkpoint.neighbours import THREADS, medians, module
from benchmarks.checkpoint.process import Usage, run

SCHEME = "W4A16"
_BYTES_PER_LAYER = 90e6
"""Of `benchmarks.checkpoint.model`, nearly."""


@dataclass(frozen=True, slots=True)
class Size:
    """`bytes_read` of sparse files, `shards` of them. `copy`: of a copy that reads and writes as many bytes."""

    bytes_read: int
    shards: int
    usage: Usage
    copy: Usage

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return {
            "bytes": self.bytes_read,
            "shards": self.shards,
            "usage": self.usage.as_json(),
            "copy": self.copy.as_json(),
        }


def sizes(work: Path, gigabytes: Sequence[float], *, one_file: bool, rounds: int) -> list[Size]:
    """Convert models of these sizes in turns, each in one file or in files of about 1 GB."""
    sources = {}
    for number, size in enumerate(gigabytes):
        source = work / f"source-{number}"
        layers, shards = max(1, round(size * 1e9 / _BYTES_PER_LAYER)), 1 if one_file else max(1, round(size))
        sources[source] = model.write(source, layers=layers, shards=shards, sparse=True)
    samples: dict[Path, list[Usage]] = {source: [] for source in sources}
    copies: dict[Path, list[Usage]] = {source: [] for source in sources}
    target = work / "output"
    for _ in range(rounds):
        for source in random.sample(list(samples), len(samples)):
            command = quantize(source, target, SCHEME, THREADS)
            samples[source].append(run(command, THREADS, target))
            written = sum(path.stat().st_size for path in target.iterdir())
            shutil.rmtree(target)
            copies[source].append(run([*module("copying"), str(source), str(target), str(written)], THREADS, target))
            shutil.rmtree(target)
    found = []
    for source, size_in_bytes in sources.items():
        shards = len(list(source.glob("*.safetensors")))
        found.append(Size(size_in_bytes, shards, medians(samples[source]), medians(copies[source])))
        shutil.rmtree(source)
    return found
