"""What Linux tells about the processes of a service."""

from __future__ import annotations

import os
from pathlib import Path


def is_running(process: int) -> bool:
    """Return whether a process is there and has not ended."""
    try:
        return _state_and_parent(process)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _state_and_parent(process: int) -> tuple[str, int]:
    # They stand after the name, which may have anything in it.
    state, parent = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[:2]
    return state, int(parent)


def children(process: int) -> list[int]:
    """Return the ids of the processes that a process has started and that have not ended, in ascending order."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                state, parent = _state_and_parent(int(each.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == process and state != "Z":
                found.append(int(each.name))
    return sorted(found)


def open_sockets(process: int) -> int:
    """Return how many sockets a process has."""
    count = 0
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        try:
            count += os.readlink(descriptor).startswith("socket:")
        except FileNotFoundError:
            continue
    return count
