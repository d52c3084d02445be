"""Ranges of f32 for the rules, and a count of what was compared."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.calibration.ranges import RangeOptions, RangeParameters, range_rule_named
from requant.mlir import parse_storage
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import ranges as subject
from tests.interop.conformance.systems import System

Array = NDArray[Any]

_SPECIAL = (
    (0.0, 0.0), (0.0, 2.0**-149), (-(2.0**-149), 0.0), (-(2.0**-149), 2.0**-149), (0.0, 2.0**-126), (-(2.0**-126), 0.0),
    (-1e-40, 1e-40), (1.0, 1.0), (-1.0, -1.0), (1.0, 3.0), (-3.0, -1.0), (-1.0, 1.0), (0.0, 255.0), (-1.5, 253.5),
    (-127.5, 127.5), (-128.0, 127.0), (-0.5, 254.5), (0.0, 6.0), (-1e-8, 1e-8), (-6.1e-5, 6.1e-5), (0.0, 1e38),
)  # fmt: skip


def ranges(seed: int | np.random.Generator, count: int) -> tuple[Array, Array]:
    """Minimums and maximums, f32: odd ones, ones that end in steps, and others from subnormal to huge."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-44, 36, count)
    ends = np.sort(rng.standard_normal((2, count)) * scale, axis=0)
    steps = np.sort(rng.integers(-600, 600, (2, count)) / 2 * 2.0 ** rng.integers(-20, 20, count), axis=0)
    found = np.concatenate([np.array(_SPECIAL).T, ends, steps], axis=1).astype(np.float32)
    return found[0], found[1]


def beside(lows: Array, highs: Array) -> tuple[Array, Array]:
    """The ranges, their neighbours by one ulp of f32 at either end, empty ranges at their ends, and zeros below 0."""
    infinity = np.float32(np.inf)
    pairs = [
        (lows, highs), (np.nextafter(lows, -infinity), highs), (lows, np.nextafter(highs, infinity)),
        (lows, np.nextafter(lows, infinity)), (highs, highs), (np.where(lows == 0, np.float32(-0.0), lows), highs),
        (np.float32(-0.0) * np.abs(lows), np.abs(highs)),
    ]  # fmt: skip
    found = np.concatenate([np.stack(pair) for pair in pairs], axis=1)
    kept = found[:, np.isfinite(found).all(axis=0)]
    return kept[0], kept[1]


def elements_of_range(low: float, high: float, bits: int, narrow: bool, rng: np.random.Generator) -> Array:
    """Elements on ties and near them, beyond the range, and the odd ones."""
    levels = (1 << bits) - 1 - narrow
    step = np.float32(np.float32(high) - np.float32(low)) / np.float32(levels)
    ties = ((rng.integers(-2, levels + 2, 200) + 0.5) * float(step) + low).astype(np.float32)
    spread = rng.uniform(low - abs(low), high + abs(high), 200).astype(np.float32)
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3e38], np.float32)
    return np.concatenate([ties, np.nextafter(ties, np.float32(np.inf)), spread, odd])


class RangeComparison:
    """Compares our parameters with a system's, one range at a time, and counts."""

    def __init__(self, system: System, scheme: str, storage: str, **options: Any) -> None:
        self.name = f"{scheme} {storage} {' '.join(options)}"
        self._system, self._scheme = system, scheme
        self._rule = range_rule_named(scheme)
        self._storage, self._options = parse_storage(storage), RangeOptions(**options)
        self.compared = 0
        self.differences: list[str] = []

    def derive(self, lows: Array, highs: Array) -> RangeParameters:
        """Return our parameters."""
        return self._rule.derive_all(lows.astype(np.float64), highs.astype(np.float64), self._storage, self._options)

    def pairs(self, lows: Array, highs: Array) -> Iterator[tuple[float, float, float, int]]:
        """Yield each range with our scale and zero point. All are derived at once."""
        found = self.derive(lows, highs)
        columns = (lows, highs, found.scales, found.zero_points)
        yield from zip(*(column.tolist() for column in columns), strict=True)

    def add(self, what: object, ours: tuple[float, int], theirs: tuple[float, int]) -> None:
        self.compared += 1
        if ours != theirs:
            self.differences.append(f"{what}: ours {ours}, theirs {theirs}")

    def finish(self, at_least: int) -> None:
        """Fail if anything differed or too little was compared. `-rP` shows the count."""
        sys.stdout.write(f"{self.name}: {self.compared:,} ranges compared\n")
        # A scale and a zero point each.
        record(self._system, [subject(self._scheme)], 2 * self.compared, 2 * len(self.differences))
        assert not self.differences, f"{len(self.differences)} differ\n" + "\n".join(self.differences[:10])
        assert self.compared >= at_least


def as_f32_steps(lows: Array, highs: Array) -> tuple[Array, Array]:
    """The ranges whose width f32 holds."""
    with np.errstate(over="ignore"):
        fits = np.isfinite(np.maximum(highs, 0) - np.minimum(lows, 0))
    return lows[fits], highs[fits]
