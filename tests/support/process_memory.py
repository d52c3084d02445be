"""The memory of a process, and of a service with all of its processes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.processes import children


def memory(pid: int) -> dict[str, int]:
    """Return the memory of a process and its children now (`VmRSS`) and at the peak (`VmHWM`), in bytes.

    Pages that several have count for each, and peaks are added whenever they were: growth is at most the difference.
    """
    texts = [Path(f"/proc/{each}/status").read_text() for each in (pid, *children(pid))]
    return {
        name: sum(int(found) << 10 for text in texts for found in re.findall(rf"{name}:\s+([0-9]+) kB", text))
        for name in ("VmRSS", "VmHWM")
    }


def proportional_memory(pid: int) -> int:
    """Return the memory of a process and its children in bytes (PSS): pages that several have count once."""
    texts = [Path(f"/proc/{each}/smaps_rollup").read_text() for each in (pid, *children(pid))]
    return sum(int(found) << 10 for text in texts for found in re.findall(r"^Pss:\s+([0-9]+) kB", text, re.M))


def peak_kib(pid: int) -> int:
    """Return the most memory that a process and its children have had."""
    return memory(pid)["VmHWM"] >> 10
