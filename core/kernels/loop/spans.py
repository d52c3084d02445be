"""The loop of every kernel that converts a tensor: span by span, in a span row by row (`core.kernels.loop.layout`).

What a tensor rarely holds, such as integers outside of the bounds and NaN, is not looked for element by element. A span
is converted as if it had none, and what was seen on the way, such as the lowest and the highest integer, tells whether
that was right. If not, the span is converted once more, with more care.
"""

from __future__ import annotations

from collections.abc import Callable

from core.kernels.jit.jit import Array, Number, inlined
from core.kernels.loop.layout import after_rows, locate, rows_from, unpacked

SPAN = 4096
"""Long enough that looking at what was seen does not count, short enough to be in the cache when converted again."""

WHOLE = 1 << 62
"""A span that is the whole tensor, for kernels that convert nothing twice."""

STOP = 1 << 30
"""More care than there is: the kernel stops."""


def span_loop(
    convert_rows: Callable[..., Number], finish: Callable[..., Number], span: int = SPAN
) -> Callable[..., Number]:
    """Return the loop over a tensor. Both functions get `work`, all that stays the same throughout.

    `convert_rows(work, begin, rows, length, parameter, cycle, care, seen)` converts `rows` rows of `length` elements
    from `begin` on and returns what was seen, beginning with `nothing`: a tuple. `parameter` is that of the first row,
    and each row has the next one; in a cycle each element has.

    `finish(work, care, seen, counts)` returns the care that a span needs: 0 for none, or STOP. If that is not more than
    it was converted with, it adds what was counted to `counts`.
    """

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
            end = min(done + span, size)
            span_place = place
            seen = nothing
            begin = done
            while begin < end:
                rows, length = rows_from(end - begin, place, layout)
                parameter = place[0] + place[1]
                place = after_rows(rows, length, place, layout)
                seen = convert_rows(work, begin, rows, length, parameter, layout[4] != 0, care, seen)
                begin += rows * length
            needed = finish(work, care, seen, counts)
            if needed == STOP:
                break
            if needed > care:
                place = span_place
            else:
                done = end
            care = needed
        return done

    return convert_spans
