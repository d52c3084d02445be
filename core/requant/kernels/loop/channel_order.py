"""A tensor's elements put in the order of their parameters: all of the first channel or block, then all of the next.

Within a parameter the elements keep the tensor's row-major order.
"""

from __future__ import annotations

from numba import types

from requant.kernels.jit.jit import Array, Number, kernel, readable, writable
from requant.kernels.loop.layout import after_rows, left_in_row, locate


@kernel(
    *(
        (
            readable(dtype),  # source
            writable(dtype),  # target: all elements in their new order
            types.int64,  # start: index of source[0] in the whole tensor
            types.int64,  # run     \
            types.int64,  # channels | requant.kernels.loop.layout, as runs
            types.int64,  # group    |
            types.int64,  # groups  /
            readable(types.int64),  # owners: the parameter of each entry of the layout
            writable(types.int64),  # ends: for each parameter, where its next element goes
        )
        for dtype in (types.float32, types.float64)
    )
)
def order_by_channel(
    source: Array,
    target: Array,
    start: Number,
    run: Number,
    channels: Number,
    group: Number,
    groups: Number,
    owners: Array,
    ends: Array,
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
