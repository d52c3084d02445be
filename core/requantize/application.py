"""What a scheme's stage becomes for two tensors and their multipliers: a kernel and what it is called with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.kernels._jit import Kernel
from core.operands import StoredOperand
from core.plan import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A kernel and what it is called with. `parameters` have one entry for each block of the common granularity.

    `rule` and `wraps` are two of the kernel's rules; `bounds` are minimum, maximum, and those of y and of y + z_out.
    """

    kernel: Kernel
    rule: int
    parameters: tuple[Array, ...]
    bounds: Array
    wraps: bool = False


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
        fits = self.source.dtype.itemsize < 8 and self.source.storage != "u32"
        return fits and all(int(abs(each).max()) < 1 << 31 for each in zeros)
