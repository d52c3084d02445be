"""How parameters follow the elements of a flat tensor. Every per-axis kernel is one of these two loops.

    runs:   element e has channel (e // run) % channels     long runs of one channel; per tensor is one endless run
    cycle:  element e has channel e % channels              channels one after the other: a last axis, or short runs
                                                            whose parameters were repeated element by element

`e` counts from the start of the whole tensor, so a tensor can be worked through in any pieces with the same result.
"""

from __future__ import annotations

from core.kernels._jit import device

# A piece this long cannot overflow the 32-bit counters that keep the inner loops in 32-bit lanes.
LONGEST_PIECE = 1 << 30


@device
def first_channel(start: int, run: int, channels: int, cycle: bool) -> int:
    """The channel of element `start`."""
    return start % channels if cycle else (start // run) % channels


@device
def next_channel(channel: int, channels: int, cycle: bool) -> int:
    """The channel after the piece that ended: in a cycle each piece runs to the end of the parameters."""
    return 0 if cycle or channel + 1 == channels else channel + 1


@device
def piece_length(left: int, element: int, run: int, channel: int, channels: int, cycle: bool) -> int:
    """How many of the `left` elements from `element` on one inner loop can take."""
    return min(left, channels - channel if cycle else run - element % run, LONGEST_PIECE)
