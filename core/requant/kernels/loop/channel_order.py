"""A tensor's elements put in the order of their parameters: all of the first channel or block, then all of the next.

Within a parameter the elements keep the tensor's row-major order.
"""

from __future__ import annotations

from numba import types

from requant.kernels.jit.jit import kernel
from requant.kernels.jit.signature import I64, In, Out, Real
from requant.kernels.loop.layout import after_rows, left_in_row, locate


@kernel({Real: types.float32}, {Real: types.float64})
def order_by_channel(
    source: In[Real],
    target: Out[Real],  # all elements in their new order
    start: I64,  # index of source[0] in the whole tensor
    run: I64,  # run to groups: requant.kernels.loop.layout, as runs
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
        length = min(left_in_row(place, layout), source.size - done)
        owner = owners[place[0] + place[1]]
        place = after_rows(1, length, place, layout)
        inputs = source[done : done + length]
        # Within the target: the caller's `ends` begin at the sums of the sizes of the parameters before.
        outputs = target[ends[owner] : ends[owner] + length]
        for i in range(inputs.size):
            outputs[i] = inputs[i]
        ends[owner] += length
        done += length
