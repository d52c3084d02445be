"""The loops of kernels over the runs and rows of a tensor, each with its parameter.

How parameters follow the elements of a flat tensor:

    runs:   element e has parameter  ((e // group) % groups) * channels + (e // run) % channels
    cycle:  element e has parameter  ((e // group) % groups) * channels + e % channels

`runs` are long runs of one channel: per tensor is one endless run, blocks along the last axis are runs of the block's
size. A `cycle` is one channel after the other: a last axis, or short runs whose parameters were repeated element by
element. `group` elements share one row of `channels` parameters: blocks along an outer axis; it is a multiple of the
cycle, or of run * channels. `e` counts from the start of the whole tensor, so a tensor can be worked through in any
pieces with the same result.

What a tensor rarely holds, such as integers outside of the bounds and NaN, is not looked for element by element. A span
is converted as if it had none, and what was seen on the way, such as the lowest and the highest integer, tells whether
that was right. If not, the span is converted once more, with more care.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from requant.kernels.jit.jit import Array, Number, device, inlined
from requant.kernels.simd.vector import LANES

_LONGEST_SHORT_ROW = 256

SPAN = 4096
"""Long enough that looking at what was seen does not count, short enough to be in the cache when converted again."""

ZERO = np.int64(0)
"""The start value of a loop's variable. With the literal 0, numba would compile each device function in the loop twice:
first for that literal, then for int64, and only call the second."""

STOP = 1 << 30
"""More check than there is: the kernel stops."""


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


@device
def next_run(
    place: tuple[int, int, int, int], left: int, layout: tuple[int, int, int, int, int]
) -> tuple[Number, Number, tuple[Number, Number, Number, Number]]:
    """The parameter of the run at `place`, how many of the `left` elements are in it, and where the next one is.

    In a cycle a run is a row: its first element has the parameter, and the others have those that follow.
    """
    length = min(left_in_row(place, layout), left)
    return place[0] + place[1], length, after_rows(1, length, place, layout)


def row_loop(convert_rows: Callable[..., Number]) -> Callable[..., tuple[Number, ...]]:
    """Return the loop over the rows between two elements, of which the first is at `place`.

    `convert_rows(work, begin, rows, length, parameter, cycle, check, seen)` converts `rows` rows of `length` elements
    from `begin` on, and returns what was seen so far: a tuple. `parameter` is that of the first row, and each row has
    the next one; in a cycle each element has. `work` is what stays the same throughout.
    """

    @inlined
    def convert_between(
        work: tuple[Number, ...],
        begin: Number,
        end: Number,
        place: tuple[Number, Number, Number, Number],
        layout: tuple[Number, Number, Number, Number, Number],
        check: Number,
        seen: Number,
    ) -> tuple[Number, ...]:
        """Return where `end` is, and what was seen."""
        while begin < end:
            rows, length = rows_from(end - begin, place, layout)
            parameter = place[0] + place[1]
            place = after_rows(rows, length, place, layout)
            seen = convert_rows(work, begin, rows, length, parameter, layout[4] != 0, check, seen)
            begin += rows * length
        return place, seen

    return convert_between


def span_loop(convert_rows: Callable[..., Number], finish: Callable[..., Number]) -> Callable[..., Number]:
    """Return the loop over a tensor, of which `row_loop(convert_rows)` converts each span.

    What was seen in a span begins with `nothing`. `finish(work, check, seen, counts)` returns the check that the span
    needs: 0 for none, or STOP. If that is not more than it was converted with, it adds what was counted to `counts`.
    """
    convert_between = row_loop(convert_rows)

    @inlined
    def convert_spans(
        work: tuple[Number, ...],
        start: Number,
        size: Number,
        numbers: Array,
        nothing: tuple[Number, ...],
        counts: Array,
        misaligned: Number = 0,
    ) -> Number:
        """Convert `size` elements, the first of which is element `start` of the tensor with the layout `numbers`.

        Where runs are longer than a span, those after the first begin `misaligned` elements earlier. Return how many
        elements were converted.
        """
        layout = unpacked(numbers)
        place = locate(start, layout)
        # What one span needs the next one mostly needs too.
        check = ZERO
        done = ZERO
        end = min(SPAN if layout[0] < SPAN else SPAN - misaligned, size)
        while done < size:
            after, seen = convert_between(work, done, end, place, layout, check, nothing)
            needed = finish(work, check, seen, counts)
            if needed == STOP:
                break
            if needed <= check:
                place = after
                done = end
                end = min(done + SPAN, size)
            check = needed
        return done

    return convert_spans
