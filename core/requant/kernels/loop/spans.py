"""The loop of every kernel that converts a tensor: span by span, in a span row by row (`requant.kernels.loop.layout`).

What a tensor rarely holds, such as integers outside of the bounds and NaN, is not looked for element by element. A span
is converted as if it had none, and what was seen on the way, such as the lowest and the highest integer, tells whether
that was right. If not, the span is converted once more, with more care.
"""

from __future__ import annotations

from collections.abc import Callable

from requant.kernels.jit.jit import Array, Number, inlined
from requant.kernels.loop.layout import after_rows, locate, rows_from, unpacked

SPAN = 4096
"""Long enough that looking at what was seen does not count, short enough to be in the cache when converted again."""

STOP = 1 << 30
"""More care than there is: the kernel stops."""


def row_loop(convert_rows: Callable[..., Number]) -> Callable[..., tuple[Number, ...]]:
    """Return the loop over the rows between two elements, of which the first is at `place`.

    `convert_rows(work, begin, rows, length, parameter, cycle, care, seen)` converts `rows` rows of `length` elements
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
        care: Number,
        seen: Number,
    ) -> tuple[Number, ...]:
        """Return where `end` is, and what was seen."""
        while begin < end:
            rows, length = rows_from(end - begin, place, layout)
            parameter = place[0] + place[1]
            place = after_rows(rows, length, place, layout)
            seen = convert_rows(work, begin, rows, length, parameter, layout[4] != 0, care, seen)
            begin += rows * length
        return place, seen

    return convert_between


def span_loop(convert_rows: Callable[..., Number], finish: Callable[..., Number]) -> Callable[..., Number]:
    """Return the loop over a tensor, of which `row_loop(convert_rows)` converts each span.

    What was seen in a span begins with `nothing`. `finish(work, care, seen, counts)` returns the care that the span
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
    ) -> Number:
        """Convert `size` elements, the first of which is element `start` of the tensor with the layout `numbers`.

        Return how many were converted.
        """
        layout = unpacked(numbers)
        place = locate(start, layout)
        # What one span needs the next one mostly needs too.
        care = 0
        done = 0
        while done < size:
            end = min(done + SPAN, size)
            after, seen = convert_between(work, done, end, place, layout, care, nothing)
            needed = finish(work, care, seen, counts)
            if needed == STOP:
                break
            if needed <= care:
                place = after
                done = end
            care = needed
        return done

    return convert_spans
