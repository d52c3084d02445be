"""`python -m benchmarks.checkpoint.pairs`: a quantized checkpoint in another form, beside the nearest program.

Sources are written by us, but for gpt-oss, whose MXFP4 has no writer: its codes are random.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.checkpoint import gpt_oss, model
from benchmarks.checkpoint.command import IGNORED, convert, quantize
from benchmarks.checkpoint.neighbours import OURS, PYTHON, THREADS, medians, module
from benchmarks.checkpoint.process import ROOT, Usage, run
from benchmarks.section import Section, table
from requant.checkpoint.safetensors.header import Header
from requant.checkpoint.safetensors.reader import read_header
from requant.checkpoint.safetensors.writer import head_bytes, layout
from requant.kernels.jit.warmup import compile_kernels

_TITLE = "From one form to another"
_LAYERS, _SHARDS = 4, 3
_ROUNDS = 3
_CONVERTER, _LLM_COMPRESSOR, _TRANSFORMERS = "compressed-tensors' converter", "llm-compressor", "transformers"
_PROGRAMS = {_CONVERTER: "converters", _LLM_COMPRESSOR: "llm_compressor", _TRANSFORMERS: "transformers"}
"""The modules of this folder that run them."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two forms. `write` writes the source, `action` and `options` are of our command.

    `others`: in what the other program's tensors are others than ours; empty if all bytes have to be the same.
    """

    source: str
    target: str
    write: Callable[[Path, Path], None]
    action: str
    options: tuple[str, ...]
    program: str
    program_options: tuple[str, ...] = ()
    others: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of a pair, medians by program. `read`: the bytes of the source. `differing` of `tensors`."""

    pair: Pair
    read: int
    tensors: int
    differing: int
    usage: dict[str, Usage]

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return {
            "from": self.pair.source,
            "to": self.pair.target,
            "read": self.read,
            "tensors": self.tensors,
            "differing": self.differing,
            "usage": {name: usage.as_json() for name, usage in self.usage.items()},
        }


def _quantized(scheme: str) -> Callable[[Path, Path], None]:
    """Return what writes the model of these benchmarks in a scheme. The second folder is for the model itself."""

    def write(folder: Path, plain: Path) -> None:
        model.write(plain, layers=_LAYERS, shards=_SHARDS)
        run(quantize(plain, folder, scheme, THREADS), THREADS)
        shutil.rmtree(plain)

    return write


def _nvfp4(folder: Path, plain: Path) -> None:
    """Write ModelOpt's NVFP4 with scales of activations: without them, compressed-tensors refuses a model."""
    _quantized("MODELOPT_W4A16_NVFP4")(folder, plain)
    files: dict[str, str] = {}
    for path in sorted(folder.glob("*.safetensors")):
        header = _header(path)
        data = {each.name: path.read_bytes()[each.begin : each.end] for each in header.tensors}
        tensors = [(each.name, each.dtype, each.shape) for each in header.tensors]
        for name in [name for name in data if name.endswith(".weight_scale_2")]:
            scale = name.replace(".weight_scale_2", ".input_scale")
            data[scale] = np.float32(0.01).tobytes()
            tensors.append((scale, "F32", ()))
        written = layout(tensors, header.metadata)
        path.write_bytes(head_bytes(written) + b"".join(data[each.name] for each in written.tensors))
        files |= dict.fromkeys(data, path.name)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "weight_map": files}))
    for path in (folder / "config.json", folder / "hf_quant_config.json"):
        path.write_text(path.read_text().replace("W4A16_NVFP4", "NVFP4"))


def _header(path: Path) -> Header:
    with path.open("rb") as file:

        def read(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        return read_header(read, path.stat().st_size)


_FP8 = _quantized("FINE_GRAINED_FP8")
PAIRS = (
    Pair("`AWQ`", "`W4A16_ASYM`", _quantized("AWQ"), "repack", ("--scheme", "W4A16_ASYM"), _CONVERTER),
    Pair(
        "NVFP4 of ModelOpt",
        "`NVFP4A16`",
        _nvfp4,
        "repack",
        ("--scheme", "NVFP4A16", "--allow-rounding"),
        _CONVERTER,
        others="shapes of global scales, codes of -0; scales of activations besides",
    ),
    Pair("`FINE_GRAINED_FP8`", "BF16", _FP8, "dequantize", (), _CONVERTER),
    Pair(
        "`FINE_GRAINED_FP8`",
        "`W4A16`",
        _FP8,
        "quantize",
        ("--scheme", "W4A16", *IGNORED),
        _LLM_COMPRESSOR,
        program_options=("W4A16",),
    ),
    Pair("MXFP4 of gpt-oss", "BF16", lambda folder, _: gpt_oss.write(folder), "dequantize", (), _TRANSFORMERS),
)


def side_by_side(pair: Pair, work: Path) -> Row:
    """Convert by both programs in turns. `work`: an empty folder, which is empty again afterwards."""
    source = work / "source"
    pair.write(source, work / "plain")

    def commands_to(target: Path) -> dict[str, list[str]]:
        theirs = [*module(_PROGRAMS[pair.program], PYTHON), str(source), str(target), *pair.program_options]
        return {OURS: convert(pair.action, source, target, THREADS, *pair.options), pair.program: theirs}

    found = []
    for command in commands_to(work / "output").values():
        run(command, THREADS)
        found.append(_contents(work / "output"))
        shutil.rmtree(work / "output")
    ours, theirs = found
    differing = sum(ours.get(name) != theirs.get(name) for name in ours.keys() | theirs.keys())
    samples: dict[str, list[Usage]] = {name: [] for name in (OURS, pair.program)}
    for _ in range(_ROUNDS):
        for name in random.sample(list(samples), len(samples)):
            samples[name].append(run(commands_to(work / "output")[name], THREADS, work / "output"))
            shutil.rmtree(work / "output")
    read = sum(path.stat().st_size for path in source.glob("*.safetensors"))
    shutil.rmtree(source)
    usage = {name: medians(each) for name, each in samples.items()}
    return Row(pair, read, len(ours.keys() | theirs.keys()), differing, usage)


def _contents(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return dtype, shape and digest of each tensor, in whichever file it is."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            for each in _header(path).tensors:
                file.seek(each.begin)
                digest = hashlib.sha256(file.read(each.end - each.begin)).digest()
                found[each.name] = (each.dtype, each.shape, digest)
    return found


def _starts(work: Path) -> dict[str, Usage]:
    """Return what the imports of each program take; of ours, with the plan."""
    plain = work / "plain"
    model.write(plain, layers=_LAYERS, shards=_SHARDS)
    commands = {OURS: quantize(plain, work / "output", "W8A8", THREADS, "--dry-run")}
    commands |= {program: module(name, PYTHON) for program, name in _PROGRAMS.items()}
    found = {name: medians([run(command, THREADS) for _ in range(_ROUNDS)]) for name, command in commands.items()}
    shutil.rmtree(plain)
    return found


_HEADER = [
    "from",
    "to",
    "program",
    "CPU (s)",
    "CPU without imports, per GB of the source (s)",
    "wall (s)",
    "peak memory (MiB)",
    "CPU / ours",
    "memory / ours",
    "tensors",
]


def report() -> Section:
    """Measure, and return the section. Without the other programs, it says why."""
    if not (PYTHON.parent.parent / "checkpoints.done").exists():
        text = f"Not measured: there is no llm-compressor in {PYTHON.parent.parent.name} (`make bench` installs it).\n"
        return Section(_TITLE, text, None)
    with tempfile.TemporaryDirectory(prefix=".benchmark-", dir=ROOT) as folder:
        work = Path(folder)
        start = _starts(work)
        rows = [side_by_side(pair, work) for pair in PAIRS]
    imports = ", ".join(f"{usage.cpu:.1f} s by {name}" for name, usage in start.items())
    text = (
        f"Sources of {min(row.read for row in rows) / 1e9:.2f} to {max(row.read for row in rows) / 1e9:.2f} GB, 2 "
        "threads, the source in the page cache. Both programs run from start to end, in turns; then the output is "
        f"brought to the disk, which counts. Imports take CPU time: {imports}. `repack` also compares each number, and "
        "hashes all files.\n"
    )
    lines = [line for row in rows for line in _lines(row, start)]
    data = {
        "start": {name: usage.as_json() for name, usage in start.items()},
        "pairs": [row.as_json() for row in rows],
    }
    failures = [
        f"{row.pair.source} to {row.pair.target}: {row.differing} of {row.tensors} tensors differ from those of "
        f"{row.pair.program}"
        for row in rows
        if row.differing and not row.pair.others
    ]
    return Section(_TITLE, f"{text}\n{table(_HEADER, lines)}", data, tuple(failures))


def _lines(row: Row, start: Mapping[str, Usage]) -> list[list[str]]:
    pair, ours = row.pair, row.usage[OURS]
    others = f"{row.differing} of {row.tensors} are others: {pair.others}" if pair.others else "**others**"
    lines = []
    for name, usage in row.usage.items():
        ratios = ["", "", ""]
        if name != OURS:
            compared = others if row.differing else "the same bytes"
            ratios = [f"{usage.cpu / ours.cpu:.1f}", f"{usage.resident / ours.resident:.1f}", compared]
        lines.append(
            [
                pair.source,
                pair.target,
                f"`{pair.action}`" if name == OURS else name,
                f"{usage.cpu:.2f}",
                f"{(usage.cpu - start[name].cpu) / row.read * 1e9:.2f}",
                f"{usage.wall:.2f}",
                f"{usage.resident / 2**20:,.0f}",
                *ratios,
            ]
        )
    return lines


if __name__ == "__main__":
    compile_kernels()
    print(report().markdown)
