"""`python -m benchmarks.triton.report`: all that is measured beside Triton, as Markdown."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from urllib.request import urlopen

from benchmarks.section import Section, table
from benchmarks.triton.calls import HEADER as CALL_HEADER
from benchmarks.triton.calls import call_rows, calls
from benchmarks.triton.exchanges import CPU_HEADER, HEADER, cpu_rows, exchanges, rate_rows
from benchmarks.triton.servers import TRITON_PYTHON, running
from requant.kernels.jit.warmup import compile_kernels

_TITLE = "Triton Inference Server"


def report() -> Section:
    """Measure, and return the section. Without Triton, it says why."""
    if not TRITON_PYTHON.exists():
        return _without("there is no .venv-triton, which takes Python 3.11 on x86-64 Linux (`make .venv-triton/done`)")
    with ExitStack() as stack:
        try:
            ours, triton = stack.enter_context(running())
        except RuntimeError as error:
            return _without(str(error))
        with urlopen(f"http://127.0.0.1:{triton.server.port}/v2") as reply:
            version = json.load(reply)["version"]
        exchanged = exchanges(ours.server, triton.server)
        called = calls(ours, triton)
    note = f"Triton Inference Server {version}; docs/performance.md says how it runs.\n"
    tables = [table(HEADER, rate_rows(exchanged)), table(CPU_HEADER, cpu_rows(exchanged))]
    tables.append(table(CALL_HEADER, call_rows(called)))
    data = {
        "version": version,
        "exchanges": [row.as_json() for row in exchanged],
        "calls": [row.as_json() for row in called],
    }
    return Section(_TITLE, "\n".join([note, *tables]), data)


def _without(reason: str) -> Section:
    print(f"Nothing is measured beside Triton: {reason}", file=sys.stderr)
    return Section(_TITLE, f"Not measured: {reason.splitlines()[0].rstrip(':')}.\n", None)


if __name__ == "__main__":
    compile_kernels()
    print(report().markdown)
