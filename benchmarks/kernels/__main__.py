"""`python -m benchmarks.kernels GROUP [--huge]`: one JSON object a line for each row of the group."""

from __future__ import annotations

import json
import sys

from benchmarks.kernels.groups import GROUPS
from requant.kernels.jit.warmup import compile_kernels

if __name__ == "__main__":
    compile_kernels()
    for row in GROUPS[sys.argv[1]]("--huge" in sys.argv):
        print(json.dumps(row.as_json()), flush=True)
