"""Plans of the requantization kernels: stored integers scaled by multipliers, with the scheme's demands checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from core.kernels._jit import Kernel
from core.kernels.requantize import Requirement
from core.operands import StoredOperand
from core.parameters.schemes import Scheme
from core.plan import Array, Plan, pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A kernel and what it is called with. `parameters` have one entry for each block of the common granularity.

    `kernels` is one for runs and one for cycles, or one for runs only. `lanes` is the dtype that they read; `narrow`:
    whether they write the target's own width, and not 32 bits. `limits` are their scalars.
    """

    kernels: tuple[Kernel, ...]
    lanes: np.dtype[Any]
    narrow: bool
    parameters: tuple[Array, ...]
    limits: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides, and their zero points as arrays with one entry for each block of the common granularity."""

    source: StoredOperand
    target: StoredOperand
    zeros_in: Array
    zeros_out: Array

    def within(self, widths: Array) -> bool:
        """Whether -2^width <= q - z_in < 2^width for every q, where `in_int32`."""
        bounds = np.int64(1) << widths
        lowest, highest = self.source.lowest - self.zeros_in, self.source.highest - self.zeros_in
        return bool(np.all((lowest >= -bounds) & (highest < bounds)))

    @property
    def reach(self) -> Array:
        """The largest |q - z_in| for each block, where `in_int32`."""
        ends = (abs(end - self.zeros_in) for end in (self.source.lowest, self.source.highest))
        reach: Array = np.maximum(*ends)
        return reach

    @property
    def in_int32(self) -> bool:
        """Whether int32 holds every source and every zero point."""
        zeros = (self.zeros_in, self.zeros_out)
        return self.lanes == np.int32 and all(int(abs(each).max()) < 1 << 31 for each in zeros)

    @property
    def lanes(self) -> np.dtype[Any]:
        """The narrower of int32 and int64 that holds every source."""
        return np.dtype("<i8" if self.source.dtype.itemsize == 8 or self.source.storage == "u32" else "<i4")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPlan(Plan):
    """Plan of `core.kernels.requantize` and `core.kernels.requantize_float`."""

    scheme: Scheme
    kernel: Kernel
    lanes: np.dtype[Any]
    narrow: bool
    layout: tuple[int, int, int, int]
    parameters: tuple[Array, ...]
    limits: tuple[float, ...]

    def new_counts(self) -> Array:
        """See Plan.new_counts. The last of these is the requirement that the first undefined element fails."""
        return np.array([0, 0, 0, -1, -1], np.int64)

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step."""
        # Unsigned storage keeps the same low bits.
        stored = target.view(f"<i{target.dtype.itemsize}")
        if self.narrow or stored.dtype == np.int32:
            self._widened(source, stored, start, counts)
            return
        for piece in pieces(source.size):
            buffer = np.empty(source[piece].size, np.int32)
            self._widened(source[piece], buffer, start + piece.start, counts)
            stored[piece] = buffer

    def _widened(self, source: Array, target: Array, start: int, counts: Array) -> None:
        if source.dtype == self.lanes:
            self._run(source, target, start, counts)
            return
        for piece in pieces(source.size):
            self._run(source[piece].astype(self.lanes), target[piece], start + piece.start, counts)

    def _run(self, source: Array, target: Array, start: int, counts: Array) -> None:
        self.kernel(source, target, start, *self.layout, *self.parameters, *self.limits, counts)

    def explain_undefined(self, counts: Array) -> str:
        """See Plan.explain_undefined."""
        demand = self.scheme.stage.demands[Requirement(int(counts[4]))]
        return f"profile {self.profile}, scheme {self.scheme.name}, is not defined for this element: {demand}"
