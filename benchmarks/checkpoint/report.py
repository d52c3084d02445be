"""`python -m benchmarks.checkpoint.report`: all that is measured of whole checkpoints, as Markdown."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.checkpoint import model
from benchmarks.checkpoint.neighbours import (
    CARRIED,
    COPY,
    OURS,
    PYTHON,
    SCHEMES,
    SHORT_COPY,
    THEIRS,
    TORCHAO,
    Row,
    carried,
    side_by_side,
    starts,
)
from benchmarks.checkpoint.process import ROOT, Usage
from benchmarks.checkpoint.sizes import SCHEME, Size, sizes
from benchmarks.section import Section, table
from requant.kernels.jit.warmup import compile_kernels

_TITLE = "Whole checkpoints"
_LARGEST = (1.0, 2.0, 5.0, 10.0, 20.0)
_ONE_FILE = (0.5, 2.0, 8.0)
_CPU_OF_INT8 = 14.0
_LEAST_CPU, _LEAST_MEMORY, _MAX_RESIDENT, _MAX_OF_COPY = 10.0, 7.0, 256 << 20, 1.3
# The example of a 70 B model: its bytes in bf16, and a machine with an assumed disk, in bytes per second.
_LARGE, _CORES, _READ, _WRITE = 141e9, 16, 3e9, 1.5e9


def report() -> Section:
    """Measure, and return the section. Without llm-compressor, it says why."""
    if not (PYTHON.parent.parent / "checkpoints.done").exists():
        text = f"Not measured: there is no llm-compressor in {PYTHON.parent.parent.name} (`make bench` installs it).\n"
        return Section(_TITLE, text, None)
    # On the disk that the repository is on: in many systems /tmp is memory.
    with tempfile.TemporaryDirectory(prefix=".benchmark-", dir=ROOT) as folder:
        work = Path(folder)
        source = work / "source"
        size = model.write(source)
        start = starts(source, work)
        rows = [side_by_side(source, work, scheme) for scheme in SCHEMES]
        mostly_carried = carried(source, work)
        one_file = sizes(work, _ONE_FILE, one_file=True, rounds=1)
        growing = sizes(work, _LARGEST, one_file=False, rounds=3)
    parts = [
        f"{size / 1e6:,.0f} MB of bf16 in 5 files, 2 threads, the source in the page cache. All programs run from "
        "start to end, in turns; then the output is brought to the disk, which counts. Memory is the most that was "
        "resident; llm-compressor maps the source, which counts in it. Imports take "
        f"{start[OURS].cpu:.1f} s of our CPU time and {start[THEIRS].cpu:.1f} s of llm-compressor's. torchao's "
        "arithmetic and files are its own.\n",
        "### Goals\n",
        table(["goal", "wanted", "measured", ""], _goals(rows, mostly_carried, [*one_file, *growing])),
        "### Beside others\n",
        table(_HEADER, [line for row in rows for line in _lines(row)]),
        "### Beside a copy\n",
        "A copy of the source, and one that reads it all and writes only as many bytes as the output has; both in two "
        "threads.\n",
        table(
            ["scheme", "ours (s)", "copy (s)", "ours / copy", "shorter copy (s)", "ours / shorter copy"],
            [*(_beside_copy(row) for row in rows), _carried(mostly_carried)],
        ),
        "### One file of any size\n",
        f"{SCHEME}, sparse files.\n",
        table(["file (GB)", "peak memory (MiB)", "wall (s)"], [_one_file(each) for each in one_file]),
        "### Time against size\n",
        f"{SCHEME}, sparse files of 1 GB each, medians of 3.\n",
        table(
            ["checkpoint (GB)", "files", "wall (s)", "CPU (s)", "peak memory (MiB)", "GB/s", "wall / shorter copy's"],
            [_growing(each) for each in growing],
        ),
        "### A model of 70 B parameters, by calculation\n",
        _large(rows, size, start),
    ]
    data = {
        "start": {name: usage.as_json() for name, usage in start.items()},
        "schemes": [row.as_json() for row in rows],
        "carried": {name: usage.as_json() for name, usage in mostly_carried.items()},
        "one_file": [each.as_json() for each in one_file],
        "growing": [each.as_json() for each in growing],
    }
    return Section(_TITLE, "\n".join(parts), data, tuple(_failures(rows, [*one_file, *growing])))


def _goals(rows: list[Row], mostly_carried: dict[str, Usage], measured: list[Size]) -> list[list[str]]:
    """Return a row for each goal, with the worst that was measured."""
    cpu = min(row.usage[THEIRS].cpu / row.usage[OURS].cpu for row in rows)
    memory = min(row.usage[THEIRS].resident / row.usage[OURS].resident for row in rows)
    resident = _most_resident(rows, measured)
    copy = max(row.usage[OURS].wall / row.usage[COPY].wall for row in rows)
    of_int8 = rows[0].usage[THEIRS].cpu / rows[0].usage[OURS].cpu
    beside_copy = mostly_carried[OURS].wall / mostly_carried[COPY].wall
    goals = (
        (
            f"llm-compressor's CPU time / ours, {rows[0].scheme}",
            f"{_CPU_OF_INT8:.0f}",
            f"{of_int8:.1f}",
            of_int8 >= _CPU_OF_INT8,
        ),
        ("llm-compressor's CPU time / ours", f"{_LEAST_CPU:.0f}", f"{cpu:.1f}", cpu >= _LEAST_CPU),
        ("llm-compressor's memory / ours", f"{_LEAST_MEMORY:.0f}", f"{memory:.1f}", memory >= _LEAST_MEMORY),
        (
            "peak memory, whatever the size (MiB)",
            f"{_MAX_RESIDENT >> 20}",
            f"{resident / 2**20:.0f}",
            resident <= _MAX_RESIDENT,
        ),
        ("wall time / a copy's", f"{_MAX_OF_COPY}", f"{copy:.2f}", copy <= _MAX_OF_COPY),
        (
            f"wall time / a copy's, {CARRIED}",
            f"{_MAX_OF_COPY}",
            f"{beside_copy:.2f}",
            beside_copy <= _MAX_OF_COPY,
        ),
    )
    return [[goal, wanted, found, "reached" if reached else "not reached"] for goal, wanted, found, reached in goals]


def _most_resident(rows: list[Row], measured: list[Size]) -> int:
    return max([row.usage[OURS].resident for row in rows] + [each.usage.resident for each in measured])


_HEADER = ["scheme", "program", "CPU (s)", "wall (s)", "peak memory (MiB)", "CPU / ours", "memory / ours", "files"]


def _lines(row: Row) -> list[list[str]]:
    ours = row.usage[OURS]
    lines = []
    for name in (OURS, THEIRS, TORCHAO):
        if name not in row.usage:
            continue
        usage = row.usage[name]
        files = {OURS: "", THEIRS: "the same bytes" if row.same else "**others**", TORCHAO: "its own"}[name]
        ratios = ["", ""]
        if name != OURS:
            ratios = [f"{usage.cpu / ours.cpu:.1f}", f"{usage.resident / ours.resident:.1f}"]
        lines.append(
            [
                row.scheme,
                name,
                f"{usage.cpu:.2f}",
                f"{usage.wall:.2f}",
                f"{usage.resident / 2**20:,.0f}",
                *ratios,
                files,
            ]
        )
    return lines


def _beside_copy(row: Row) -> list[str]:
    ours, copy, short = (row.usage[name].wall for name in (OURS, COPY, SHORT_COPY))
    return [row.scheme, f"{ours:.2f}", f"{copy:.2f}", f"{ours / copy:.2f}", f"{short:.2f}", f"{ours / short:.2f}"]


def _carried(usage: dict[str, Usage]) -> list[str]:
    ours, copy = usage[OURS].wall, usage[COPY].wall
    return [CARRIED, f"{ours:.2f}", f"{copy:.2f}", f"{ours / copy:.2f}", "", ""]


def _one_file(size: Size) -> list[str]:
    return [f"{size.bytes_read / 1e9:.1f}", f"{size.usage.resident / 2**20:,.0f}", f"{size.usage.wall:.1f}"]


def _growing(size: Size) -> list[str]:
    usage = size.usage
    return [
        f"{size.bytes_read / 1e9:.1f}",
        str(size.shards),
        f"{usage.wall:.1f}",
        f"{usage.cpu:.1f}",
        f"{usage.resident / 2**20:,.0f}",
        f"{size.bytes_read / usage.wall / 1e9:.2f}",
        f"{usage.wall / size.copy.wall:.2f}",
    ]


def _large(rows: list[Row], size: int, start: dict[str, Usage]) -> str:
    """Return what a large model would take, from the CPU time of the small one."""
    lines = []
    for row in rows:
        share = _LARGE / size
        written = row.written * share
        disk = max(_LARGE / _READ, written / _WRITE)
        cpu = (row.usage[OURS].cpu - start[OURS].cpu) * share
        theirs = (row.usage[THEIRS].cpu - start[THEIRS].cpu) * share
        lines.append(
            [
                row.scheme,
                f"{written / 1e9:.0f}",
                f"{cpu:.0f}",
                f"{cpu / _CORES:.0f}",
                f"{disk:.0f}",
                f"**{max(disk, cpu / _CORES):.0f}**",
                f"{theirs:,.0f}",
            ]
        )
    note = (
        f"{_LARGE / 1e9:.0f} GB of bf16, {_CORES} cores like these, a disk that reads {_READ / 1e9:.1f} GB/s and "
        f"meanwhile writes {_WRITE / 1e9:.1f} GB/s. Reading, converting and writing overlap.\n"
    )
    header = [
        "scheme",
        "output (GB)",
        "CPU without imports (s)",
        f"on {_CORES} cores (s)",
        "disk (s)",
        "the longer (s)",
        "llm-compressor's CPU, without imports (s)",
    ]
    return f"{note}\n{table(header, lines)}"


def _failures(rows: list[Row], measured: list[Size]) -> list[str]:
    found = [f"{row.scheme}: our files differ from llm-compressor's" for row in rows if not row.same]
    resident = _most_resident(rows, measured)
    if resident > _MAX_RESIDENT:
        found.append(f"a conversion took {resident / 2**20:.0f} MiB; at most {_MAX_RESIDENT >> 20} are wanted")
    return found


if __name__ == "__main__":
    compile_kernels()
    print(report().markdown)
