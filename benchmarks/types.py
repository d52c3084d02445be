"""Parsing and printing of long type texts, beside MLIR's own parser where `iree-opt` is installed."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.measure import Contender, medians, table
from core.mlir import parse_type, print_type


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


def types() -> str:
    """Return the table. MLIR's time includes the start of its process, which the empty module's row shows."""
    tool = _iree_opt()
    rows = []
    for channels in (1, 1024, 65536):
        text = _per_axis(channels)
        parsed = parse_type(text)
        contenders: dict[str, Contender] = {
            "parse": partial(parse_type, text),
            "print": partial(print_type, parsed),
        }
        if tool is not None:
            contenders["mlir"] = _mlir(tool, text)
            contenders["start"] = _mlir(tool, "i32")
        times = medians(contenders, rounds=5)
        mlir = f"{(times['mlir'] - times['start']) * 1e3:,.1f}" if tool is not None else "not installed"
        rows.append(
            [
                f"{channels:,}",
                f"{len(text):,}",
                f"{times['parse'] * 1e3:,.2f}",
                f"{times['print'] * 1e3:,.2f}",
                f"{len(text) / times['parse'] / 1e6:.1f}",
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
    return table("Type texts", header, rows)
