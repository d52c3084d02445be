"""Squared errors, summed for each parameter of a layout (`requant.kernels.loop.layout`).

    sum += (y - x) * (y - x)          each step in binary64, element after element

The elements of one parameter are added in the tensor's row-major order, one by one, to what it has so far. So a tensor
can be worked through in any pieces, in their order, with the same sums.
"""

from __future__ import annotations

import numpy as np
from numba import types

from requant.kernels.jit.jit import Kernel, kernel
from requant.kernels.jit.signature import F64, I64, In, Out, Real
from requant.kernels.loop.layout import after_rows, left_in_row, locate


def _squared_error(cycle: bool) -> Kernel:
    @kernel({Real: types.float32}, {Real: types.float64})
    def squared_error(
        a: In[Real],  # x
        b: In[Real],  # y
        start: I64,  # index of a[0] in the whole tensor
        run: I64,  # run to groups: requant.kernels.loop.layout
        channels: I64,
        group: I64,
        groups: I64,
        owners: In[I64],  # the parameter of each entry of the layout; of a cycle, its own
        sums: Out[F64],  # one per parameter
    ) -> None:
        layout = (run, channels, group, groups, cycle)
        place = locate(start, layout)
        done = 0
        while done < a.size:
            length = min(left_in_row(place, layout), a.size - done)
            first = place[0] + place[1]
            place = after_rows(1, length, place, layout)
            left = a[done : done + length]
            right = b[done : done + length]
            if cycle:
                row = sums[first : first + length]
                for i in range(left.size):
                    error = np.float64(right[i]) - np.float64(left[i])
                    row[i] += error * error
            else:
                total = sums[owners[first]]
                for i in range(left.size):
                    error = np.float64(right[i]) - np.float64(left[i])
                    total += error * error
                sums[owners[first]] = total
            done += length

    return squared_error


SQUARED_ERROR: dict[bool, Kernel] = {cycle: _squared_error(cycle) for cycle in (False, True)}
"""The kernel for (cycle): a cycle whose elements each are one parameter."""
