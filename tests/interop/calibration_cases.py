"""Data for calibrators, and a count of how many of our answers are the real system's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from requant.calibration.methods import CalibratedRanges
from requant.calibration.ranges import RangeParameters
from requant.errors import LimitError, RequantError
from tests.core.calibration.methods.observation import Array, samples
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import calibration
from tests.interop.conformance.systems import System

Pair = tuple[float, float]


def batches(rng: np.random.Generator, most: int, *, exponents: int = 20, steady: bool = False) -> list[Array]:
    """One to `most` tensors of one size, which reach differently far; `steady`: not far beyond the first."""
    size, scale = int(rng.integers(1, 300)), 10.0 ** rng.integers(-exponents, exponents)
    tensors = [samples(rng, size, scale * rng.choice([0.3, 1.0, 2.0])) for _ in range(rng.integers(1, most + 1))]
    if steady:
        reach = np.abs(tensors[0]).max()
        tensors = [tensor for tensor in tensors if np.abs(tensor).max() <= 3 * reach]
    return tensors


def on_a_lattice(rng: np.random.Generator, most: int) -> list[Array]:
    """Tensors on multiples of a step, so that many numbers lie on the edges of bins."""
    size, step = int(rng.integers(5, 300)), np.float32(rng.choice([1 / 3, 0.1, 0.5, 1 / 7, np.pi / 10]))
    reaches = 20 * np.arange(1, rng.integers(2, most + 1) + 1)
    return [(rng.integers(-reach, reach, size) * step).astype(np.float32) for reach in reaches]


class CalibrationComparison:
    """Compares ranges and parameters bit by bit.

    Where the system raises we have to refuse, but a limit of ours may come first.
    """

    def __init__(self, title: str, system: System, method: str) -> None:
        self.title = title
        self._system, self._method = system, method
        self.equal = self.refused = self.limited = 0
        self.differences: list[str] = []

    def add(
        self, what: object, ours: Callable[[], CalibratedRanges | RangeParameters], theirs: Callable[[], Sequence[Any]]
    ) -> None:
        """Compare one pair, or one for each channel: minimum and maximum, or scale and zero point."""
        try:
            found: Any = _pairs(ours())
        except LimitError:
            # The system is not asked: what we refuse may be more than the machine has memory for.
            self.limited += 1
            return
        except RequantError as error:
            found = error.detail
        expected: list[Pair] | str
        try:
            firsts, seconds = theirs()
            expected = list(zip(np.ravel(firsts).tolist(), np.ravel(seconds).tolist(), strict=True))
        except Exception as error:  # whatever the system raises is an answer
            expected = f"{type(error).__name__}: {error}"
        if isinstance(found, str) and isinstance(expected, str):
            self.refused += 1
        elif found == expected:
            self.equal += len(found)
        else:
            self.differences.append(f"{what}: ours {found}, theirs {expected}")

    def finish(self, at_least: int) -> None:
        """Fail if anything differed or if fewer than `at_least` were equal. `-rP` shows the counts."""
        sys.stdout.write(
            f"{self.title}: {self.equal:,} equal, {self.refused:,} refused by both, {self.limited:,} beyond a "
            "limit of ours\n"
        )
        # Two numbers each.
        record(self._system, [calibration(self._method)], 2 * self.equal, 2 * len(self.differences))
        assert not self.differences, f"{len(self.differences)} differ\n" + "\n".join(self.differences[:10])
        assert self.equal >= at_least, f"only {self.equal:,} were equal"


def _pairs(answer: CalibratedRanges | RangeParameters) -> list[Pair]:
    if isinstance(answer, CalibratedRanges):
        return list(zip(answer.minimums.tolist(), answer.maximums.tolist(), strict=True))
    return list(zip(answer.scales.tolist(), answer.zero_points.tolist(), strict=True))
