"""Which parameters belong to which element of a flat row-major tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

# Below this many consecutive elements of one channel, a vector loop over a run is too short to pay.
_SHORT_RUN = 64
# A cycle is at least about this long, so that the inner loop dominates; and never so long that it leaves the cache.
_USEFUL_CYCLE = 512
_LONGEST_CYCLE = 65536


@dataclass(frozen=True, slots=True)
class Channels:
    """The two layouts of `core.kernels.layout`, and how to lay parameters out for them.

    `run` is the number of consecutive elements of one channel. When `cycle` is set, each parameter is repeated `repeat`
    times and the whole list `tile` times, so that parameters can be read in step with the elements.
    """

    run: int
    cycle: bool = False
    repeat: int = 1
    tile: int = 1

    def lay_out(self, values: Sequence[float] | Sequence[int], dtype: str) -> NDArray[np.generic]:
        """Return one value per channel as the array that a kernel of this layout reads."""
        array = np.array(values, dtype)
        if not self.cycle:
            return array
        return np.tile(np.repeat(array, self.repeat), self.tile)


def channels_along(shape: Sequence[int], axis: int | None) -> Channels:
    """Return the layout of one channel per index along `axis` of a tensor, or of a single channel when it is None."""
    if axis is None:
        return Channels(run=max(prod(shape), 1))
    count = shape[axis]
    run = max(prod(shape[axis + 1 :]), 1)
    period = count * run
    if run == 1 or (run < _SHORT_RUN and period <= _LONGEST_CYCLE):
        return Channels(run=run, cycle=True, repeat=run, tile=max(1, _USEFUL_CYCLE // max(period, 1)))
    return Channels(run=run)
