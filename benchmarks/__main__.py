"""`python -m benchmarks`: print all tables."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.kernels import kernels
from benchmarks.types import types
from core.warmup import compile_kernels


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    compile_kernels()
    print(f"# Benchmarks\n\n{datetime.now(UTC):%Y-%m-%d}, {_cpu()}. Medians of interleaved rounds; trust the ratios.\n")
    for section in (kernels, types):
        print(section())
