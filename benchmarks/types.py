"""Parsing and printing of long type texts, beside MLIR's own parser where `iree-opt` is installed."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.measure import Contender, compare
from benchmarks.section import Section, table
from requant.mlir import parse_type, print_type


def _per_axis(channels: int) -> str:
    rng = random.Random(1)
    parameters = ", ".join(f"{rng.random() + 1e-3:.8f}:{rng.randrange(-128, 128)}" for _ in range(channels))
    return f"tensor<{channels}x64x!quant.uniform<i8:f32:0, {{{parameters}}}>>"


def _iree_opt() -> str | None:
    folders = (Path(sys.executable).parent, Path(__file__).parents[1] / ".venv-interop" / "bin")
    found = (folder / "iree-opt" for folder in folders)
    return next((str(tool) for tool in found if tool.exists()), shutil.which("iree-opt"))


def _mlir(tool: str, text: str) -> Contender:
    module = f"func.func private @f({text})\n".encode()
    return lambda: subprocess.run([tool, "-"], input=module, stdout=subprocess.DEVNULL, check=True)


def types() -> Section:
    """Return the section. MLIR's time includes the start of its process, which the empty module's row shows."""
    tool = _iree_opt()
    rows, data = [], []
    for channels in (1, 1024, 65536):
        text = _per_axis(channels)
        parsed = parse_type(text)
        ours: dict[str, Contender] = {"parse": partial(parse_type, text), "print": partial(print_type, parsed)}
        seconds = compare(ours, rounds=5).seconds
        mlir = "not installed"
        if tool is not None:
            # Most of it runs in another process, so it is timed by the clock.
            others = {"mlir": _mlir(tool, text), "start": _mlir(tool, "i32")}
            seconds |= compare(others, rounds=5, threads=2).seconds
            mlir = f"{(seconds['mlir'] - seconds['start']) * 1e3:,.1f}"
        data.append({"channels": channels, "bytes": len(text), "seconds": seconds})
        rows.append(
            [
                f"{channels:,}",
                f"{len(text):,}",
                f"{seconds['parse'] * 1e3:,.2f}",
                f"{seconds['print'] * 1e3:,.2f}",
                f"{len(text) / seconds['parse'] / 1e6:.1f}",
                mlir,
            ]
        )
    header = [
        "channels",
        "bytes",
        "parse ms",
        "print ms",
        "parse MB/s",
        "iree-opt, parse and print ms (less its start)",
    ]
    return Section("Type texts", table(header, rows), data)
