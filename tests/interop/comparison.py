"""Bits of a real system beside ours: all must be equal, and how many were compared is counted and printed."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Comparison:
    """Compares arrays bit by bit, and counts. Differences are collected, so that a failure shows all of them."""

    def __init__(self, system: str) -> None:
        self.system = system
        self.conversions = self.elements = self.excluded = 0
        self.differences: list[str] = []

    def add(self, what: object, source: Array, ours: Array, theirs: Array, except_where: Array | None = None) -> None:
        """Compare one conversion of `source`. Elements of a known deviation, `except_where`, are counted apart."""
        assert ours.dtype == theirs.dtype, (what, ours.dtype, theirs.dtype)
        assert ours.shape == theirs.shape == source.shape, (what, ours.shape, theirs.shape)
        bits = np.dtype(f"u{ours.dtype.itemsize}")
        our_bits, their_bits = ours.ravel().view(bits), theirs.ravel().view(bits)
        compared = np.ones(ours.size, bool) if except_where is None else ~except_where.ravel()
        differ = our_bits != their_bits
        if ours.dtype.kind == "f":
            # The sign and payload of a NaN that arithmetic made are the processor's.
            differ &= ~(np.isnan(ours.ravel()) & np.isnan(theirs.ravel()))
        wrong = np.flatnonzero(differ & compared)
        self.conversions += 1
        self.elements += int(np.count_nonzero(compared))
        self.excluded += int(np.count_nonzero(~compared))
        if wrong.size:
            flat = source.ravel()
            shown = [(int(i), flat[i], ours.ravel()[i], theirs.ravel()[i]) for i in wrong[:4]]
            self.differences.append(f"{what}: {wrong.size} of {ours.size}, (index, input, ours, theirs): {shown}")

    def finish(self, at_least: int) -> None:
        """Print the count. Fail if anything differed or if fewer than `at_least` elements were compared."""
        sys.stdout.write(
            f"{self.system}: {self.elements:,} elements of {self.conversions} conversions compared, "
            f"{self.excluded:,} excluded\n"
        )
        assert not self.differences, f"{len(self.differences)} conversions differ\n" + "\n".join(self.differences[:20])
        assert self.elements >= at_least, f"only {self.elements:,} elements were compared"
