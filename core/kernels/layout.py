"""How parameters follow the elements of a flat tensor. Every kernel with parameters is one of these two loops.

    runs:   element e has parameter  ((e // group) % groups) * channels + (e // run) % channels
    cycle:  element e has parameter  ((e // group) % groups) * channels + e % channels

`runs` are long runs of one channel: per tensor is one endless run, blocks along the last axis are runs of the block's
size. A `cycle` is one channel after the other: a last axis, or short runs whose parameters were repeated element by
element. `group` elements share one row of `channels` parameters: blocks along an outer axis; it is a multiple of the
cycle, or of run * channels. `e` counts from the start of the whole tensor, so a tensor can be worked through in any
pieces with the same result.
"""

from __future__ import annotations

from core.kernels._jit import device

# A piece this long cannot overflow the 32-bit counters that keep the inner loops in 32-bit lanes.
LONGEST_PIECE = 1 << 30


@device
def first_parameter(element: int, run: int, channels: int, group: int, groups: int, cycle: bool) -> int:
    """The index of the parameter of `element`."""
    row = ((element // group) % groups) * channels
    return row + (element % channels if cycle else (element // run) % channels)


@device
def piece_length(left: int, element: int, run: int, channels: int, cycle: bool) -> int:
    """How many of the `left` elements from `element` on one inner loop can take."""
    return min(left, channels - element % channels if cycle else run - element % run, LONGEST_PIECE)
