"""A histogram of differences: small ones each in a bucket of its own, larger ones by powers of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from requant.kernels.statistics.compare import BUCKETS, LARGEST_EXACT, RANKS, UNDEFINED, ZERO


class DifferenceUnit(StrEnum):
    """The unit of the differences."""

    STEPS = "steps"
    """Integers; of quantized elements, scales."""

    ULPS = "ulps"
    """Neighbouring values of a float type."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The number of elements whose difference is `low` to `high`, both included."""

    low: int
    high: int
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """The differences b - a, as whole numbers of `unit`.

    `buckets` ascend without gaps from the lowest to the highest that is not empty. Differences of -16 to 16 have
    buckets of their own; beyond, bounds are powers of two. The outermost buckets end at +-(2^63 - 1) and hold what lies
    beyond, which only elements of 64 bits and quotients of real numbers reach. `undefined` counts the elements of which
    one is NaN and the other is not. The counts of the buckets and `undefined` add up to all elements.
    """

    unit: DifferenceUnit
    buckets: tuple[Bucket, ...]
    undefined: int


def _magnitudes(rank: int) -> tuple[int, int]:
    """Return the smallest and the largest magnitude of a rank (`requant.kernels.statistics.compare`)."""
    if rank <= LARGEST_EXACT:
        return rank, rank
    return max(1 << (rank - 13), LARGEST_EXACT + 1), (1 << (rank - 12)) - 1


def _bounds(bucket: int) -> tuple[int, int]:
    low, high = _magnitudes(abs(bucket - ZERO))
    return (low, high) if bucket >= ZERO else (-high, -low)


def histogram_of(tally: Sequence[int], unit: DifferenceUnit) -> Histogram:
    """Return the histogram of a finished tally."""
    filled = [bucket for bucket in range(BUCKETS) if tally[bucket]]
    span = range(filled[0], filled[-1] + 1) if filled else range(0)
    assert len(tally) > UNDEFINED
    assert _magnitudes(RANKS - 1)[1] == (1 << 63) - 1
    return Histogram(unit, tuple(Bucket(*_bounds(bucket), tally[bucket]) for bucket in span), tally[UNDEFINED])
