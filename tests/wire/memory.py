"""The memory of a process."""

from __future__ import annotations

import re
from pathlib import Path


def memory(pid: int) -> dict[str, int]:
    """Return the memory of a process now (`VmRSS`) and at its peak (`VmHWM`), in bytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    return {name: int(found) << 10 for name, found in re.findall(r"(VmRSS|VmHWM):\s+([0-9]+) kB", text)}
