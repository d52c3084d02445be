"""The kernels' section: every group in a process of its own, and their rows as tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.kernels.goals import goals_table
from benchmarks.kernels.groups import GROUPS
from benchmarks.kernels.row import Row
from benchmarks.section import Section, table

_PEERS = ("onnxruntime", "litert", "torch", "numpy")
_NOTE = """A cell of another library is its time divided by ours: above 1, ours is faster. `≠` counts the bytes that it
gives differently, where its arithmetic is another one; elsewhere all bits were compared and are the same. `limit` is a
loop that reads and writes as much and computes nothing. onnxruntime writes to bound memory, LiteRT to its own; torch
and numpy allocate their results, as they do. `busy` is how many CPUs other processes had meanwhile.
"""

_GOALS_NOTE = """Times faster than the other; and how many times faster than it the loop is that only reads and writes.
"""
_CALL_NOTE = """What it takes to convert 1,000 elements from Python, step by step.
"""


def _run(group: str, huge: bool) -> tuple[list[Row], list[str]]:
    """Return the rows of a group, and what went wrong."""
    command = [sys.executable, "-m", "benchmarks.kernels", group, *(["--huge"] if huge else [])]
    run = subprocess.run(command, capture_output=True, text=True)
    rows = [Row(**json.loads(line)) for line in run.stdout.splitlines()]
    if run.returncode == 0:
        return rows, []
    return rows, [f"{group}: {(run.stderr.strip().splitlines() or ['failed'])[-1]}"]


def _call() -> str:
    """Return the table of a call, or nothing if it failed."""
    return subprocess.run([sys.executable, "-m", "benchmarks.kernels.call"], stdout=subprocess.PIPE, text=True).stdout


def _cell(row: Row, peer: str) -> str:
    if peer not in row.seconds:
        return ""
    differing = row.differing.get(peer, 0)
    return f"{row.seconds[peer] / row.seconds['ours']:.2f}{f' ≠{differing:,}' if differing else ''}"


def rows_table(rows: Sequence[Row]) -> str:
    """Return the table of some rows; peers that none of them has are left out."""
    peers = [peer for peer in _PEERS if any(peer in row.seconds for row in rows)]
    header = ["conversion", "elements", "µs", "GB/s", *peers, "limit", "busy"]
    cells = []
    for row in rows:
        ours = row.seconds["ours"]
        numbers = [f"{row.elements:,}", f"{ours * 1e6:,.1f}", f"{row.bytes / ours / 1e9:.1f}"]
        cells.append([row.name, *numbers, *(_cell(row, peer) for peer in (*peers, "limit")), f"{row.foreign:.1f}"])
    return table(header, cells)


def kernels(huge: bool = False) -> Section:
    """Return the section."""
    parts, everything, failures = [_NOTE], [], []
    for group in GROUPS:
        rows, wrong = _run(group, huge)
        failures += wrong
        everything += rows
        if rows:
            parts.append(f"### {group.capitalize()}\n\n{rows_table(rows)}")
    goals = f"### Goals\n\n{_GOALS_NOTE}\n{goals_table(everything)}"
    call = f"### A call\n\n{_CALL_NOTE}\n{_call()}"
    parts[1:1] = [goals, call]
    return Section("Kernels", "\n".join(parts), [row.as_json() for row in everything], tuple(failures))
