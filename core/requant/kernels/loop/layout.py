"""How parameters follow the elements of a flat tensor.

    runs:   element e has parameter  ((e // group) % groups) * channels + (e // run) % channels
    cycle:  element e has parameter  ((e // group) % groups) * channels + e % channels

`runs` are long runs of one channel: per tensor is one endless run, blocks along the last axis are runs of the block's
size. A `cycle` is one channel after the other: a last axis, or short runs whose parameters were repeated element by
element. `group` elements share one row of `channels` parameters: blocks along an outer axis; it is a multiple of the
cycle, or of run * channels. `e` counts from the start of the whole tensor, so a tensor can be worked through in any
pieces with the same result.
"""

from __future__ import annotations

from requant.kernels.jit.jit import Array, Number, device
from requant.kernels.simd.vector import LANES

_LONGEST_SHORT_ROW = 256


@device
def unpacked(layout: Array) -> tuple[Number, Number, Number, Number, Number]:
    """run, channels, group, groups and whether it is a cycle, as numbers: uses of arrays are counted, atomically."""
    return layout[0], layout[1], layout[2], layout[3], layout[4]


@device
def locate(element: int, layout: tuple[int, int, int, int, int]) -> tuple[Number, Number, Number, Number]:
    """Where `element` stands: the first parameter of its row, its channel, what is left of its run and its group."""
    run, channels, group, groups, cycle = layout
    row = ((element // group) % groups) * channels
    channel = element % channels if cycle != 0 else (element // run) % channels
    return row, channel, run - element % run, group - element % group


@device
def left_in_row(place: tuple[int, int, int, int], layout: tuple[int, int, int, int, int]) -> Number:
    """How many elements from `place` on share its parameter, or in a cycle have the parameters that follow."""
    return layout[1] - place[1] if layout[4] != 0 else place[2]


@device
def rows_from(
    left: int, place: tuple[int, int, int, int], layout: tuple[int, int, int, int, int]
) -> tuple[Number, Number]:
    """How many rows the next of the `left` elements from `place` on make, and how many elements each of them has.

    A row shares one parameter; or it is one row of a cycle. There is more than one only where rows are short, and
    whole vectors: then their parameters follow one another, and `next_vector` finds them without a loop over rows,
    whose beginning and end would cost more than the arithmetic of a block of 32.
    """
    _, channel, left_in_run, _ = place
    run, channels, _, _, cycle = layout
    if cycle != 0 or left_in_run < run or left < run or run % LANES != 0 or run > _LONGEST_SHORT_ROW:
        return 1, min(left_in_row(place, layout), left)
    return min(left // run, channels - channel), run


@device
def next_vector(parameter: int, left_in_row: int, length: int) -> tuple[Number, Number]:
    """The parameter of the next vector, and what is left of its row with it, in rows of `length` elements."""
    ends = left_in_row == LANES
    return parameter + ends, length if ends else left_in_row - LANES


@device
def after_rows(
    rows: int, length: int, place: tuple[int, int, int, int], layout: tuple[int, int, int, int, int]
) -> tuple[Number, Number, Number, Number]:
    """Where the element is that comes after the rows of `rows_from`."""
    row, channel, left_in_run, left_in_group = place
    run, channels, group, groups, cycle = layout
    if cycle != 0:
        channel += length
    elif length == left_in_run:
        left_in_run = run
        channel += rows
    else:
        left_in_run -= length
    if channel == channels:
        channel = 0
    left_in_group -= rows * length
    if left_in_group == 0:
        left_in_group = group
        row += channels
        if row == channels * groups:
            row = 0
    return row, channel, left_in_run, left_in_group
