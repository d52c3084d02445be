"""What oneDNN is compared on: scales around 1 and at the ends of f32, zero points beyond 2^24, odd reals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.support.float_samples import SPECIAL, around_ties, patterns

Array = NDArray[Any]

NAMES = {"i8": "s8", "ui8": "u8", "f8E4M3FN": "f8_e4m3", "f8E5M2": "f8_e5m2", "i4": "s4", "ui4": "u4"}
"""oneDNN's names of our element types."""
BOUNDS = {"i8": (-128, 127), "ui8": (0, 255), "i4": (-8, 7), "ui4": (0, 15)}
SMALL_FLOATS: dict[str, Any] = {"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2}
ZERO_POINTS = (None, 0, 3, -7, 200, (1 << 24) + 1, -(1 << 24) - 3, (1 << 25) + 3, (1 << 31) - 1, -(1 << 31))


def left_out(scales: Array) -> bool:
    """Whether the library leaves out scales that are attributes."""
    distances = np.abs(np.asarray(scales, np.float32) - np.float32(1))
    return bool(np.all(distances <= np.float32(1e-6)))


def around(value: float, ulps: int) -> Array:
    """The f32 of a value, and as many below and above it."""
    return (np.array(value, np.float32).view(np.int32) + np.arange(-ulps, ulps + 1, dtype=np.int32)).view(np.float32)


def scales(rng: np.random.Generator) -> list[float]:
    """All f32 near 1, on both sides of where oneDNN leaves scales out; some near other powers of two; extremes; a few
    that are random or negative."""
    chosen = [around(1.0, 20), around(2.0, 1), around(0.5, 1), np.exp2(rng.uniform(-100, 100, 8)).astype(np.float32)]
    # In f64, what rounds to 1 from either side.
    more = [1e-45, 3e-39, 1.1754943508222875e-38, 3e38, -0.5, -1.0, -0.99999994, 1 - 2.0**-26, 1 + 2.0**-25]
    return [float(scale) for scale in np.concatenate(chosen)] + more


def pairs(rng: np.random.Generator, count: int) -> Iterator[tuple[float, int | None]]:
    """Every scale with `count` zero points of the list, chosen anew each time."""
    for scale in scales(rng):
        for index in rng.choice(len(ZERO_POINTS), count, replace=False):
            yield scale, ZERO_POINTS[index]


def reals(rng: np.random.Generator, scale: float, zero_point: int | None, bounds: tuple[int, int], size: int) -> Array:
    """Ties and their neighbours, values all over the range, bit patterns, and NaN, infinities and subnormals with
    neighbours of each kind. `size` elements, shuffled, so that each comes in every lane."""
    lowest, highest = bounds
    zero = zero_point or 0
    with np.errstate(all="ignore"):
        ties = around_ties(abs(scale), zero, lowest, highest, rng)
        spread = ((rng.uniform(1.25 * lowest - 2, 1.25 * highest + 2, size) - zero) * scale).astype(np.float32)
        kinds = [SPECIAL, ties, -ties, spread, patterns(size, rng)]
        chosen = np.concatenate([rng.choice(each, size // 4) for each in kinds])
    found: Array = rng.permutation(np.concatenate([SPECIAL, chosen]))[:size]
    return found


def f8_reals(rng: np.random.Generator, target: str, scale: float) -> Array:
    """Values of all codes, ties and what f16 rounds to ties, scaled; small ones of both signs; specials; patterns."""
    with np.errstate(all="ignore"):
        values = np.arange(256, dtype=np.uint8).view(SMALL_FLOATS[target]).astype(np.float32)
        finite = np.sort(values[np.isfinite(values)])
        ties = (finite[:-1] + finite[1:]) / 2
        beside = np.concatenate([finite, ties, ties * (1 + np.float32(2.0**-20)), ties * (1 - np.float32(2.0**-20))])
        tiny = np.exp2(rng.uniform(-30, -5, 600)).astype(np.float32) * rng.choice([-1, 1], 600)
        scaled = np.concatenate([beside, tiny]).astype(np.float32) * np.float32(scale)
    found: Array = rng.permutation(np.concatenate([SPECIAL, scaled, patterns(1000, rng)]).astype(np.float32))
    return found
