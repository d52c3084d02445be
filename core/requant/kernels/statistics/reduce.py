"""Minimum and maximum of floats for each parameter of a layout (`requant.kernels.loops`), and elements in their order.

Floats are compared as integers that have the same order: of the bit pattern b of N bits, read as signed,

    key(b) = b xor ((b >> (N - 1)) and (2^(N-1) - 1))

Integers have a minimum that vector units know, in any order of the elements, so the loops run at the speed of memory
and every way to cut a tensor into pieces gives the same answer. -0 is below +0. NaN with its sign set lies below
-infinity, other NaN above +infinity, so that the two keys also tell whether there was any. `key` is its own inverse.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numba import types

from requant.kernels.jit.jit import Kernel, kernel
from requant.kernels.jit.signature import I16, I32, I64, In, Out, Real
from requant.kernels.loops import locate, next_run

Bits = TypeVar("Bits", I16, I32, I64)

_CONTAINERS: dict[int, tuple[types.Type, Any]] = {
    16: (types.int16, np.int16),
    32: (types.int32, np.int32),
    64: (types.int64, np.int64),
}


def _minimum_maximum(width: int, cycle: bool) -> Kernel:
    numba_type, integer = _CONTAINERS[width]
    shift = width - 1
    magnitude = (1 << shift) - 1

    @kernel({Bits: numba_type})
    def minimum_maximum(
        bits: In[Bits],  # the patterns of the floats
        start: I64,  # index of bits[0] in the whole tensor
        run: I64,  # run, channels, group and groups: as in requant.kernels.loops
        channels: I64,
        group: I64,
        groups: I64,
        lows: Out[Bits],  # the smallest key of each parameter so far
        highs: Out[Bits],  # the largest
    ) -> None:
        layout = (run, channels, group, groups, cycle)
        place = locate(start, layout)
        done = 0
        while done < bits.size:
            first, length, place = next_run(place, bits.size - done, layout)
            patterns = bits[done : done + length]
            if cycle:
                low_row = lows[first : first + length]
                high_row = highs[first : first + length]
                for i in range(patterns.size):
                    key = integer(patterns[i] ^ (integer(patterns[i] >> integer(shift)) & integer(magnitude)))
                    low_row[i] = min(low_row[i], key)
                    high_row[i] = max(high_row[i], key)
            else:
                low = lows[first]
                high = highs[first]
                for i in range(patterns.size):
                    key = integer(patterns[i] ^ (integer(patterns[i] >> integer(shift)) & integer(magnitude)))
                    low = min(low, key)
                    high = max(high, key)
                lows[first] = low
                highs[first] = high
            done += length

    return minimum_maximum


MINIMUM_MAXIMUM: dict[tuple[int, bool], Kernel] = {
    (width, cycle): _minimum_maximum(width, cycle) for width in _CONTAINERS for cycle in (False, True)
}
"""The kernel for (bits of a float, cycle)."""


@kernel({Real: types.float32}, {Real: types.float64})
def order_by_channel(
    source: In[Real],
    target: Out[Real],  # all elements in their new order
    start: I64,  # index of source[0] in the whole tensor
    run: I64,  # run, channels, group and groups: as in requant.kernels.loops
    channels: I64,
    group: I64,
    groups: I64,
    owners: In[I64],  # the parameter of each entry of the layout
    ends: Out[I64],  # for each parameter, where its next element goes
) -> None:
    """Move each run of `source` to the end of what its parameter has so far."""
    layout = (run, channels, group, groups, False)
    place = locate(start, layout)
    done = 0
    while done < source.size:
        parameter, length, place = next_run(place, source.size - done, layout)
        owner = owners[parameter]
        inputs = source[done : done + length]
        # Within the target: the caller's `ends` begin at the sums of the sizes of the parameters before.
        outputs = target[ends[owner] : ends[owner] + length]
        for i in range(inputs.size):
            outputs[i] = inputs[i]
        ends[owner] += length
        done += length
