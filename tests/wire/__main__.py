"""`python -m tests.wire [messages] [seed]`: the fuzz of the wire against a service of its own, a million messages long.

Fails on the first difference between a reply and that to the same message on a connection of its own, on a traceback in
the service's log, and on memory beyond the budget and what the process itself takes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import uvloop

from tests.conftest import started
from tests.support.process_memory import memory
from tests.wire.fuzz import Tally, fuzz_round

BUDGET = 256 << 20
OPTIONS = ("--drain-seconds", "0", "--head-seconds", "6", "--body-seconds", "6", "--memory-bytes", str(BUDGET))


def main() -> None:
    """Run rounds until there were enough messages."""
    messages, seed = (int(text) for text in (*sys.argv[1:], "1000000", "0")[:2])
    total, began = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, started(Path(folder) / "log", *OPTIONS) as (server, process):
        before = memory(process.pid)["VmRSS"]
        while total.messages < messages and not total.differences:
            total.add(uvloop.run(fuzz_round(server.port, seed)))
            seed += 1
            peak = memory(process.pid)["VmHWM"]
            print(
                f"{total.messages} messages on {total.connections} connections, {total.distinct} different, "
                f"{total.bytes >> 20} MiB of replies; {len(total.differences)} differences; memory {before >> 20} MiB, "
                f"{peak >> 20} MiB at the peak; {time.monotonic() - began:.0f} s",
                flush=True,
            )
    print("statuses: " + ", ".join(f"{status}: {count}" for status, count in sorted(total.statuses.items())))
    for difference in total.differences[:10]:
        print(difference)
    sys.exit(1 if total.differences or peak - before > BUDGET else 0)


if __name__ == "__main__":
    main()
