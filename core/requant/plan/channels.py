"""Which parameters belong to which element of a flat row-major tensor (`requant.kernels.loops`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Below this many consecutive elements of one channel, a vector loop over a run is too short to pay.
_SHORT_RUN = 16
# A cycle is at least about this long, so that the inner loop dominates; and never so long that it leaves the cache.
_USEFUL_CYCLE = 2048
_LONGEST_CYCLE = 65536
_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Channels:
    """One of the two layouts, and how to lay parameters out for it.

    `picked` chooses, from the parameters of the type, the one of each run, where blocks are too irregular for a row of
    channels in groups. When `cycle` is set, each parameter of a row is repeated `repeat` times and the row `tile`
    times, so that parameters can be read in step with the elements.
    """

    run: int
    channels: int
    group: int
    groups: int = 1
    cycle: bool = False
    repeat: int = 1
    tile: int = 1
    picked: NDArray[np.int64] | None = None

    @property
    def scalars(self) -> tuple[int, int, int, int]:
        """run, channels, group, groups, as kernels take them."""
        return self.run, self.channels * self.repeat * self.tile, self.group, self.groups

    @property
    def layout(self) -> NDArray[np.int64]:
        """The same and whether it is a cycle, as `requant.kernels.loops.unpacked` takes them."""
        # A type may promise more elements than there can be: the plan is made before the data are found too few.
        return np.array([min(each, _INT64_MAX) for each in (*self.scalars, self.cycle)], np.int64)

    def as_runs(self) -> Channels:
        """Return the same order of parameters as runs, for kernels that know no cycles."""
        return Channels(self.run, self.channels, self.group, self.groups, picked=self.picked)

    def lay_out(self, values: Sequence[float] | Sequence[int] | NDArray[Any], dtype: str) -> NDArray[Any]:
        """Return the parameters, one for each channel of the type, as the array that a kernel of this layout reads."""
        array = np.ascontiguousarray(values, dtype)
        if self.picked is not None:
            array = array[self.picked]
        if not self.cycle:
            return array
        rows = np.repeat(array.reshape(self.groups, self.channels), self.repeat, axis=1)
        return np.tile(rows, (1, self.tile)).ravel()


def whole_blocks(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the block, along each dimension, of a parameter that belongs to all elements."""
    return tuple(max(size, 1) for size in shape)


def block_counts(shape: Sequence[int], blocks: Sequence[int]) -> tuple[int, ...]:
    """Return how many blocks there are along each dimension. The last one may be short."""
    return tuple(-(-size // block) for size, block in zip(shape, blocks, strict=True))


def _rows(run: int, channels: int, group: int, groups: int) -> Channels:
    """Runs, or a cycle where the runs are short."""
    if group == run * channels and (run == 1 or run >= _SHORT_RUN):
        # Where each row of channels is a group of its own, one row holds them all: longer is cheaper.
        channels, group, groups = channels * groups, group * groups, 1
    period = run * channels
    if run == 1 or (run < _SHORT_RUN and period <= _LONGEST_CYCLE):
        # Tiling must not let a cycle outlast its group.
        tile = max(1, _USEFUL_CYCLE // max(period, 1)) if groups == 1 else 1
        return Channels(run, channels, group, groups, cycle=True, repeat=run, tile=tile)
    return Channels(run, channels, group, groups)


def channels_of(shape: Sequence[int], blocks: Sequence[int]) -> Channels:
    """Return the layout of parameters with one for each block; `blocks` has the block's size along each dimension.

    A block as long as its dimension is one parameter for all of it. A last block may be short. The parameters are
    row-major over ceil(dimension / block).
    """
    size = max(prod(shape), 1)
    counts = block_counts(shape, blocks)
    axes = [axis for axis, count in enumerate(counts) if count > 1]
    if not axes or 0 in shape:
        # An empty tensor may have dimensions whose product no machine integer holds.
        return Channels(1, 1, 1) if 0 in shape else Channels(size, 1, size)
    inner = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    last = axes[-1]
    regular = all(shape[axis] % blocks[axis] == 0 for axis in axes)
    # Adjacent axes in which each index has a parameter of its own count as one axis.
    head = axes[:-1]
    single = all(blocks[axis] == 1 for axis in head) and all(b == a + 1 for a, b in pairwise(head))
    if regular and (len(head) <= 1 or single):
        run = blocks[last] * inner[last]
        if not head:
            return _rows(run, counts[last], size, 1)
        first = head[-1]
        return _rows(run, counts[last], blocks[first] * inner[first], prod(counts[axis] for axis in head))
    picked = np.zeros((1,) * (last + 1), np.int64)
    for axis in range(last + 1):
        index = np.arange(shape[axis]) // blocks[axis] * prod(counts[axis + 1 :])
        picked = picked + index.reshape([-1 if i == axis else 1 for i in range(last + 1)])
    return Channels(inner[last], picked.size, size, picked=picked.ravel())
