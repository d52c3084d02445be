"""`python -m benchmarks`: measure everything, and write benchmarks/RESULTS.md and benchmarks/results.json.

It takes about a quarter of an hour on an idle machine. Bits are compared before anything is timed; where they must be
equal and are not, the run fails. With --only, the other sections stay.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from benchmarks.checkpoint.pairs import report as pairs
from benchmarks.checkpoint.report import report as checkpoints
from benchmarks.http.report import report
from benchmarks.kernels.tables import kernels
from benchmarks.matmul import matmul
from benchmarks.section import Section
from benchmarks.start import start
from benchmarks.triton.report import report as triton
from benchmarks.types import types

_LIBRARIES = ("numba", "numpy", "onnxruntime", "ai-edge-litert", "torch", "uvicorn", "fastapi")
FOLDER = Path(__file__).parent

_HEAD = """# Benchmarks

`make bench` makes this file. Medians; trust the ratios, not the times.
torch's columns are there where it is installed, before `make bench`, by
`make .venv-interop/done && .venv-interop/bin/python -m pip install torch==2.13.0`.
"""


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _versions() -> str:
    found = {name: version(name) for name in _LIBRARIES if find_spec(name.replace("ai-edge-litert", "ai_edge_litert"))}
    return ", ".join(f"{name} {number}" for name, number in found.items())


def _options(sections: Mapping[str, object]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=sections, help="a section; may be repeated")
    parser.add_argument("--huge", action="store_true", help="also 100,000,000 elements (needs 8 GB)")
    parser.add_argument("--into", type=Path, default=FOLDER, help="where the two files go")
    return parser.parse_args()


def main() -> int:
    """Run the sections. Return 1 if any failed."""
    sections: dict[str, Callable[[], Section]] = {
        "kernels": kernels,
        "products": matmul,
        "http": report,
        "triton": triton,
        "checkpoints": checkpoints,
        "pairs": pairs,
        "start": start,
        "types": types,
    }
    options = _options(sections)
    options.into.mkdir(parents=True, exist_ok=True)
    sections["kernels"] = partial(kernels, huge=options.huge)
    results = [run() for name, run in sections.items() if not options.only or name in options.only]
    machine = f"{_cpu()}, {os.cpu_count()} CPUs"
    measured = f"{datetime.now(UTC):%Y-%m-%d}, {machine}. Python {platform.python_version()}, {_versions()}"
    path = options.into / "results.json"
    # Sections that were not run stay as they are.
    kept = json.loads(path.read_text())["sections"] if options.only and path.exists() else []
    shown = {each["title"]: each for each in kept} | {
        each.title: {**asdict(each), "measured": measured} for each in results
    }
    parts = [_HEAD, *(f"## {each['title']}\n\n{each['measured']}.\n\n{each['markdown']}" for each in shown.values())]
    (options.into / "RESULTS.md").write_text("\n".join(parts))
    path.write_text(json.dumps({"sections": list(shown.values())}, indent=1) + "\n")
    failures = [failure for each in results for failure in each.failures]
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
