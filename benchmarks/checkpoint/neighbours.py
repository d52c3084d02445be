"""The same directory converted by us, by llm-compressor and by torchao, in turns; and copied."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.checkpoint.command import quantize
from benchmarks.checkpoint.process import ROOT, Usage, run

PYTHON = ROOT / ".venv-torch-2.14.1" / "bin" / "python"
THREADS = 2
SCHEMES = ("W8A8", "W4A16", "FP8_BLOCK", "NVFP4A16", "MXFP4A16")
_TORCHAO = ("W8A8", "W4A16")
"""Those that have a like in `benchmarks.checkpoint.torchao`."""
_ROUNDS = 3
OURS, THEIRS, TORCHAO = "ours", "llm-compressor", "torchao"
COPY, SHORT_COPY = "copy", "copy of as many bytes as are written"


@dataclass(frozen=True, slots=True)
class Row:
    """One scheme: medians by program. `written`: the bytes of the output. `same`: whether files are byte-identical."""

    scheme: str
    written: int
    same: bool
    usage: dict[str, Usage]

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return {
            "scheme": self.scheme,
            "written": self.written,
            "same": self.same,
            "usage": {name: usage.as_json() for name, usage in self.usage.items()},
        }


def module(name: str, python: str | Path = sys.executable) -> list[str]:
    """Return the command that runs a module of this folder."""
    return [str(python), "-m", f"benchmarks.checkpoint.{name}"]


def starts(source: Path, work: Path) -> dict[str, Usage]:
    """Return what the imports of both programs take; of ours, with the plan."""
    commands = {
        OURS: quantize(source, work / "output", SCHEMES[0], THREADS, "--dry-run"),
        THEIRS: module("llm_compressor", PYTHON),
    }
    return {name: medians([run(command, THREADS) for _ in range(_ROUNDS)]) for name, command in commands.items()}


def side_by_side(source: Path, work: Path, scheme: str) -> Row:
    """Convert by all programs in turns. `work`: an empty folder, which is empty again afterwards."""

    def commands_to(names: Sequence[str], place: str) -> dict[str, list[str]]:
        target = work / place
        programs = {
            OURS: quantize(source, target, scheme, THREADS),
            THEIRS: [*module("llm_compressor", PYTHON), str(source), str(target), scheme],
            TORCHAO: [*module("torchao", PYTHON), str(source), str(target), scheme],
        }
        return {name: programs[name] for name in names}

    first = {}
    for name in (OURS, THEIRS):
        run(commands_to((name,), name)[name], THREADS)
        first[name] = {path.name: path for path in (work / name).glob("*.safetensors")}
    same = sorted(first[OURS]) == sorted(first[THEIRS]) and all(
        _equal(path, first[THEIRS][name]) for name, path in first[OURS].items()
    )
    written = sum(path.stat().st_size for path in first[OURS].values())
    for name in (OURS, THEIRS):
        shutil.rmtree(work / name)
    commands = commands_to((OURS, THEIRS, TORCHAO) if scheme in _TORCHAO else (OURS, THEIRS), "output")
    commands[COPY] = [*module("copying"), str(source), str(work / "output")]
    commands[SHORT_COPY] = [*commands[COPY], str(written)]
    samples: dict[str, list[Usage]] = {name: [] for name in commands}
    for _ in range(_ROUNDS):
        for name in random.sample(list(samples), len(samples)):
            samples[name].append(run(commands[name], THREADS, work / "output"))
            shutil.rmtree(work / "output")
    return Row(scheme, written, same, {name: medians(of) for name, of in samples.items()})


CARRIED = "W8A8 of the first layer"


def carried(source: Path, work: Path) -> dict[str, Usage]:
    """Convert one layer and carry all others over, in turns with a copy of the source."""
    target = work / "output"
    command = quantize(source, target, SCHEMES[0], THREADS, "--targets", r"re:.*layers\.0\.")
    commands = {OURS: command, COPY: [*module("copying"), str(source), str(target)]}
    samples: dict[str, list[Usage]] = {name: [] for name in commands}
    for _ in range(_ROUNDS):
        for name in random.sample(list(samples), len(samples)):
            samples[name].append(run(commands[name], THREADS, target))
            shutil.rmtree(target)
    return {name: medians(of) for name, of in samples.items()}


def medians(samples: Sequence[Usage]) -> Usage:
    """Return the median of each figure."""
    return Usage(
        median(each.wall for each in samples),
        median(each.cpu for each in samples),
        int(median(each.resident for each in samples)),
        median(each.syncing for each in samples),
    )


def _equal(first: Path, second: Path) -> bool:
    piece = 1 << 24
    with first.open("rb") as one, second.open("rb") as other:
        while True:
            a, b = one.read(piece), other.read(piece)
            if a != b:
                return False
            if not a:
                return True
