"""The CPUs and memory that this process may use: the machine's, or what its control groups allow (`cgroups(7)`).

A limit of any ancestor holds too, so the smallest on the way to the root of the mount counts. `/proc/self/cgroup` names
the process's group in each hierarchy, relative to the root of its cgroup namespace, and `/proc/self/mountinfo` says
which part of a hierarchy is mounted where: in a container that may be the group itself, or the whole of the host's.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeVar

_Number = TypeVar("_Number", int, float)

# In mountinfo a blank, tab, newline or backslash of a path is an octal escape.
_ESCAPE = re.compile(r"\\([0-7]{3})")


class Cgroups:
    """The groups of a process. `proc` is its directory in /proc, and `root` stands before mount points."""

    def __init__(self, proc: Path = Path("/proc/self"), root: Path = Path("/")) -> None:
        self._groups = dict(_groups(_lines(proc / "cgroup")))
        self._mounts = dict(_mounts(_lines(proc / "mountinfo"), root))

    def cpus(self) -> float | None:
        """Return how many CPUs' time the process may use, as the CFS quota over its period. None: no quota."""
        return _least([*self._found("", _quota_v2), *self._found("cpu", _quota_v1)])

    def memory(self) -> int | None:
        """Return how many bytes of memory the process may use. None: no limit."""
        return _least([*self._found("", _memory_v2), *self._found("memory", _memory_v1)])

    def _found(self, controller: str, read: Callable[[Path], _Number | None]) -> Iterator[_Number]:
        """Yield the limits of the group in a hierarchy and of its ancestors. "" is that of version 2."""
        group, mount = self._groups.get(controller), self._mounts.get(controller)
        if group is None or mount is None:
            return
        part, point = mount
        try:
            below = group.relative_to(part).parts
        except ValueError:
            # Another namespace's view of the group: what is mounted is all that can be seen.
            below = ()
        if ".." in below:
            below = ()
        for depth in range(len(below), -1, -1):
            try:
                limit = read(point.joinpath(*below[:depth]))
            except (OSError, ValueError, ZeroDivisionError):
                continue  # the root has no such files, and a controller may be off
            if limit is not None:
                yield limit


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def _groups(lines: Iterable[str]) -> Iterator[tuple[str, PurePosixPath]]:
    """Yield each controller with the path of the process's group: `hierarchy:controller,controller:path`."""
    for line in lines:
        fields = line.split(":", 2)
        if len(fields) == 3:
            for controller in fields[1].split(","):
                yield controller, PurePosixPath(fields[2])


def _mounts(lines: Iterable[str], root: Path) -> Iterator[tuple[str, tuple[PurePosixPath, Path]]]:
    """Yield each controller with the part of its hierarchy that is mounted, and where (`proc_pid_mountinfo(5)`)."""
    for line in lines:
        mount, _, kind = line.partition(" - ")
        fields, file_system = mount.split(" "), kind.split(" ")
        if len(fields) < 5 or len(file_system) < 3:
            continue
        part, point = (_ESCAPE.sub(lambda match: chr(int(match[1], 8)), field) for field in fields[3:5])
        place = PurePosixPath(part), root / point.lstrip("/")
        if file_system[0] == "cgroup2":
            yield "", place
        elif file_system[0] == "cgroup":
            # Some of the options are controllers' names.
            yield from ((option, place) for option in file_system[2].split(","))


def _least(limits: Iterable[_Number]) -> _Number | None:
    return min(limits, default=None)


def _quota_v2(group: Path) -> float | None:
    quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
    return None if quota == "max" else int(quota) / int(period)


def _quota_v1(group: Path) -> float | None:
    quota = int((group / "cpu.cfs_quota_us").read_text(encoding="ascii"))
    return None if quota < 0 else quota / int((group / "cpu.cfs_period_us").read_text(encoding="ascii"))


def _memory_v2(group: Path) -> int | None:
    limit = (group / "memory.max").read_text(encoding="ascii").strip()
    return None if limit == "max" else int(limit)


def _memory_v1(group: Path) -> int:
    """Return the group's own limit, or an ancestor's that cannot be seen from here. No limit is a number near 2^63."""
    limits = [int((group / "memory.limit_in_bytes").read_text(encoding="ascii"))]
    for line in _lines(group / "memory.stat"):
        name, _, value = line.partition(" ")
        if name == "hierarchical_memory_limit":
            limits.append(int(value))
    return min(limits)


def available_cpus(cgroups: Cgroups | None = None) -> int:
    """Return how many CPUs this process may use: the smaller of its affinity and its cgroup quota, at least 1.

    `os.cpu_count()` is the machine's number, which in a container is often far more than the quota.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = (cgroups or Cgroups()).cpus()
    return max(1, cpus if quota is None else min(cpus, math.ceil(quota)))


def available_memory(cgroups: Cgroups | None = None) -> int:
    """Return how many bytes of memory this process may use: the machine's, or its cgroup's limit if that is less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = (cgroups or Cgroups()).memory()
    return memory if limit is None else min(memory, limit)
