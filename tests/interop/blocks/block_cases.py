"""Blocks on which formats with shared scales go wrong: of all magnitudes, at ties, about the largest element, zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# The largest elements of f8E4M3FN, f8E5M2, f6E2M3FN, f6E3M2FN and f4E2M1FN, and where rounding would pass them.
EDGES = (448.0, 464.0, 57344.0, 61440.0, 7.5, 7.75, 28.0, 30.0, 6.0, 7.0)


def finite_blocks(rng: np.random.Generator, block: int, lowest: int = -149, highest: int = 127) -> Array:
    """Rows of one block of finite f32, with magnitudes from 2^lowest to 2^highest."""

    def powers(count: int) -> Array:
        return np.exp2(rng.integers(lowest, highest, (count, 1)))

    one_sided = np.abs(rng.standard_normal((400, block))) * powers(400) * rng.choice([-1.0, 1.0], (400, 1))
    rows = [
        rng.standard_normal((4000, block)) * powers(4000) / 4,
        # Ties of elements, and equal magnitudes of both signs.
        rng.integers(-64, 65, (2000, block)) / 64 * powers(2000),
        rng.choice([-1.0, 1.0], (200, block)) * powers(200),
        one_sided / 4,
    ]
    for edge in EDGES:
        row = rng.uniform(-edge, edge, (60, block))
        beside = edge * rng.choice([1 - 2.0**-24, 1, 1 + 2.0**-23], 60) * rng.choice([-1, 1], 60)
        row[np.arange(60), rng.integers(0, block, 60)] = beside
        rows.append(row * np.exp2(rng.integers(max(lowest, -20), 20, (60, 1))))
    exponents = np.arange(lowest, highest)[:, None]
    with np.errstate(under="ignore", over="ignore"):
        whole = np.concatenate(rows).astype(np.float32)
        exact = np.exp2(exponents).astype(np.float32)
        hair_below = np.nextafter(exact, np.float32(0)) * rng.choice([-1, 1], (exact.size, block)).astype(np.float32)
        steps = (exact * np.linspace(-1, 1, block)).astype(np.float32)
    zeros = np.zeros((3, block), np.float32)
    zeros[1], zeros[2, 0] = -0.0, -0.0
    found = np.concatenate([whole, hair_below, steps, zeros])
    return np.asarray(found[np.isfinite(found).all(1)])
