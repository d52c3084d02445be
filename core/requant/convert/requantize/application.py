"""What a scheme's stage becomes for two tensors and their multipliers: a kernel and what it is called with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.kernels.convert.requantize.general import Field
from requant.kernels.jit.jit import Kernel
from requant.kernels.simd.integer_lanes import Storage, storage_of
from requant.plan.channels import Channels
from requant.plan.operands import StoredOperand
from requant.plan.plan import Array

_LARGEST_WORD_ADDED = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A kernel and what it is called with: the layout and then choices, parameters, and perhaps bounds.

    `parameters` have one entry for each block of the common granularity. A kernel with `bounds` takes each array of
    these on its own. The fast ones take as few arrays as can be, for each takes as long as the arithmetic of some
    hundred elements: layout and choices as one, and the parameters, row after row, as one.
    """

    kernel: Kernel
    choices: Array
    parameters: tuple[Array, ...]
    bounds: Array | None = None

    def arguments(self, channels: Channels) -> tuple[Array, ...]:
        """Return the arguments, with the parameters laid out for the kernel."""
        rows = [channels.lay_out(each, each.dtype.str) for each in self.parameters]
        if self.bounds is None:
            return np.concatenate([channels.layout, self.choices]), np.concatenate(rows)
        return channels.layout, self.choices, *rows, self.bounds


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

    @property
    def elements(self) -> tuple[Storage, int]:
        """What the source is stored in, and the bytes of an element of the target."""
        return storage_of(self.source.dtype), self.target.dtype.itemsize

    def in_words(self, added: Array) -> bool:
        """Whether sums are made in 16 bits: the target has bytes, and what is added fits 14 bits and a sign."""
        return self.target.dtype.itemsize == 1 and int(np.abs(added).max()) < _LARGEST_WORD_ADDED

    def rules(self, rule: int, *, wraps: bool = False) -> Array:
        """Return the rules of the kernels in `requant.kernels.convert.requantize.general`."""
        storage, target_bytes = self.elements
        rules = {
            Field.RULE: rule,
            Field.SOURCE: storage,
            Field.TARGET_BYTES: target_bytes,
            Field.WRAPS: wraps,
        }
        return np.array([int(rules[field]) for field in Field], np.int64)
