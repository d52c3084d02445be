"""Timing of contenders side by side: warm, in a shuffled order in every round, and the median of each.

What runs in one thread is timed by the CPU time of the process, all of whose threads count: on an idle machine that is
the time that passes, and on a busy one it leaves out the waiting for a CPU. What uses several threads is timed by the
clock. A comparison also looks at how much of the machine other processes took meanwhile: they share the caches and the
memory, so the more they took, the less it is worth.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

Contender = Callable[[], object]

_SHORTEST_SAMPLE = 0.008
_MIN_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Comparison:
    """Median seconds of one call of each contender, and the CPUs' worth of time that other processes took meanwhile."""

    seconds: dict[str, float]
    foreign: float


def _busy_seconds() -> float:
    """CPU time of all processes since the machine started: /proc/stat's first line without idle, iowait and steal."""
    user, nice, system, _, _, irq, softirq = Path("/proc/stat").read_text().split()[1:8]
    return sum(map(int, (user, nice, system, irq, softirq))) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def compare(
    contenders: Mapping[str, Contender], rounds: int = 9, budget: float = 3.0, *, threads: int = 1
) -> Comparison:
    """Time the contenders. A sample takes 8 ms or one call; rounds end early, after five, at `budget` seconds."""
    clock = process_time if threads == 1 else perf_counter
    repeats = {}
    for name, contender in contenders.items():
        contender()
        begun = perf_counter()
        contender()
        repeats[name] = max(1, round(_SHORTEST_SAMPLE / max(perf_counter() - begun, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    started, busy, own = perf_counter(), _busy_seconds(), _own_seconds()
    for round_number in range(rounds):
        if round_number >= _MIN_ROUNDS and perf_counter() - started > budget:
            break
        random.shuffle(order)
        for name in order:
            contender, count = contenders[name], repeats[name]
            begun = clock()
            for _ in range(count):
                contender()
            samples[name].append((clock() - begun) / count)
    foreign = (_busy_seconds() - busy) - (_own_seconds() - own)
    elapsed = perf_counter() - started
    return Comparison({name: median(taken) for name, taken in samples.items()}, max(0.0, foreign / elapsed))
