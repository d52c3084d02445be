"""Accumulators at and beside the ties of a scaling by m * 2^-right."""

from __future__ import annotations

import numpy as np

INT32 = (-(2**31), 2**31 - 1)


def near_ties(
    rng: np.random.Generator, multiplier: int, right: int, count: int, bounds: tuple[int, int] = INT32, most: int = 300
) -> list[int]:
    """`count` integers v within `bounds` with v * m / 2^right at, or one step beside, k + 1/2, |k| <= `most`.

    Where the factor is so large that no such v is near a tie, they are small integers instead; a few are the bounds and
    their neighbours.
    """
    lowest, highest = bounds
    halves = (2 * int(k) + 1 for k in rng.integers(-most, most, count))
    steps = rng.integers(-1, 2, count).tolist()
    ties = [(half << max(right - 1, 0)) // max(multiplier, 1) + step for half, step in zip(halves, steps, strict=True)]
    edges = [lowest, lowest + 1, -1, 0, 1, highest - 1, highest]
    for index, edge in enumerate(edges[: count // 2]):
        ties[index * (count // len(edges)) if count >= len(edges) else index] = edge
    return [min(max(each, lowest), highest) for each in ties]
