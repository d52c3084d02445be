"""The memory of another process."""

from __future__ import annotations

import re
from pathlib import Path


def peak_kib(pid: int) -> int:
    """The most memory that a process has had."""
    text = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmHWM:\s+([0-9]+) kB", text)
    assert match is not None
    return int(match[1])
