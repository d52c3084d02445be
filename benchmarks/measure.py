"""Timing of contenders side by side: one warm-up each, then rounds in a shuffled order, and the median of each."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter

Contender = Callable[[], object]
_SHORTEST_SAMPLE = 0.004


def medians(contenders: Mapping[str, Contender], rounds: int = 9) -> dict[str, float]:
    """Return the median seconds of one call of each contender. Short calls are repeated within a sample."""
    repeats = {}
    for name, contender in contenders.items():
        contender()
        begun = perf_counter()
        contender()
        repeats[name] = max(1, round(_SHORTEST_SAMPLE / max(perf_counter() - begun, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            contender, count = contenders[name], repeats[name]
            begun = perf_counter()
            for _ in range(count):
                contender()
            samples[name].append((perf_counter() - begun) / count)
    return {name: median(taken) for name, taken in samples.items()}


def table(title: str, header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table under a heading."""
    lines = [f"## {title}", "", f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])
