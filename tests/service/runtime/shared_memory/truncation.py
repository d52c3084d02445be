"""Kernels at work on a file that is truncated under them, again and again.

Each round quantizes from one file into another, both mapped, while another process truncates them and makes them long
again. Prints how many rounds lost pages of the input, of the output, and of neither; the process has to live.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

from requant.convert.quantize import plan_quantize
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.plan.plan import Array, Plan
from requant_service.runtime.shared_memory.regions import Mapping

ELEMENTS = 1 << 16
THREADS = 2
SECONDS = 200

# What the other process does: to the first byte and back, as fast as it can.
_OTHER = """
import os, random, sys
files = [(int(fd), int(size)) for fd, size in zip(sys.argv[1::2], sys.argv[2::2])]
while os.getppid() != 1:
    for fd, size in files:
        os.ftruncate(fd, random.randrange(size))
        os.ftruncate(fd, size)
"""


def main(least: int) -> dict[str, int]:
    """Return the rounds by what they lost, after at least so many of each, or `SECONDS`."""
    source_type = parse_type(f"tensor<{ELEMENTS}xf32>")
    assert isinstance(source_type, TensorType)
    plan = plan_quantize(source_type, parse_type(f"tensor<{ELEMENTS}x!quant.uniform<i8:f32, 0.5:3>>"), "onnx")
    plan.run(np.zeros(ELEMENTS, np.float32), np.zeros(ELEMENTS, np.int8))
    counts = dict.fromkeys(("input", "output", "neither"), 0)
    sizes = 4 * ELEMENTS, ELEMENTS
    with tempfile.TemporaryFile(dir="/dev/shm") as source, tempfile.TemporaryFile(dir="/dev/shm") as target:
        files = source.fileno(), target.fileno()
        for file, size in zip(files, sizes, strict=True):
            os.ftruncate(file, size)
        arguments = [str(number) for pair in zip(files, sizes, strict=True) for number in pair]
        with subprocess.Popen([sys.executable, "-c", _OTHER, *arguments], pass_fds=files) as other:
            deadline = time.monotonic() + SECONDS

            def work() -> None:
                while min(counts.values()) < least and time.monotonic() < deadline:
                    _round(plan, files, sizes, counts)

            threads = [threading.Thread(target=work) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            other.terminate()
    return counts


def _round(plan: Plan, files: tuple[int, int], sizes: tuple[int, int], counts: dict[str, int]) -> None:
    source, target = (Mapping(file, 0, size) for file, size in zip(files, sizes, strict=True))
    numbers: Array = source.data.view(np.float32)
    plan.run(numbers, target.data.view(np.int8))
    counts["input"] += source.is_lost
    counts["output"] += target.is_lost
    counts["neither"] += not (source.is_lost or target.is_lost)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]))))
