"""A tensor on its way through a plan: any pieces of it, as they travel, to the same pieces of the result.

Numbers such as i4 or i12 may travel densely packed (`requant.plan.packing`); a plan knows one number to an integer
only. Pieces may be converted in any order and side by side; each has a tally of its own, and `merged` adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from requant.formats.elements import BYTE
from requant.plan.packing import dense_bytes, pack_into, unpack
from requant.plan.plan import Array, Plan

# Eight numbers of any width end at the end of a byte.
_GROUP = 8


class Conversion:
    """A plan with the forms in which its input and output travel: `None`, or the bits of a number that is packed.

    A travelling tensor is a flat array of entries: `input_entries` of `input_dtype`, `output_entries` of
    `output_dtype`; they are its elements, or the bytes that those are packed in. A piece of the input has a multiple of
    `input_group` entries, unless it is the last.
    """

    def __init__(self, plan: Plan, packed_in: int | None = None, packed_out: int | None = None) -> None:
        self.plan = plan
        self.elements = plan.elements
        self._packed_in = packed_in
        self._packed_out = packed_out
        self.input_dtype = plan.input_dtype if packed_in is None else BYTE
        self.output_dtype = plan.output_dtype if packed_out is None else BYTE
        self.input_group = packed_in or (1 if packed_out is None else _GROUP)
        self.input_entries = self.input_at(plan.elements)
        self.output_entries = self.output_at(plan.elements)
        self.input_bytes = self.input_entries * self.input_dtype.itemsize
        self.output_bytes = self.output_entries * self.output_dtype.itemsize
        self._checks_bounds = plan.input_bounds is not None
        if plan.input_bounds is not None and packed_in is not None:
            lowest, highest = plan.input_bounds
            # So many bits mostly hold nothing but numbers of the type.
            self._checks_bounds = highest - lowest < (1 << packed_in) - 1
        # Conversions of one kind take about the same time for a byte.
        self.kind = (type(plan), plan.input_dtype, plan.output_dtype, plan.rounding, packed_in, packed_out)

    def input_at(self, element: int) -> int:
        """Return the index of the entry of the input at which a group begins with this element."""
        return element if self._packed_in is None else dense_bytes(element, self._packed_in)

    def output_at(self, element: int) -> int:
        """Return the index of the entry of the output at which a group begins with this element."""
        return element if self._packed_out is None else dense_bytes(element, self._packed_out)

    def element_at(self, entry: int) -> int:
        """Return the index of the element with which a group begins at this entry of the input, or all at its end."""
        return entry if self._packed_in is None else min(entry * _GROUP // self._packed_in, self.elements)

    def pieces(self, start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
        """Cut the elements from `start` to `stop` into pieces of about `size` elements that end at groups."""
        size = max(size // _GROUP, 1) * _GROUP
        for begin in range(start, stop, size):
            yield begin, min(begin + size, stop)

    def check(self, source: Array, start: int) -> None:
        """Raise TensorDataError if a number of the piece that begins at element `start` is not of its type."""
        self.plan.check_bounds(self.unpacked(source, start), start)

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """Convert the piece `source` that begins at element `start` into `target`, both as they travel.

        Raise TensorDataError for a number that its type does not hold. `counts` is that of Plan.step.
        """
        source = self.unpacked(source, start)
        if self._checks_bounds:
            self.plan.check_bounds(source, start)
        if self._packed_out is None:
            self.plan.step(source, target, start, counts)
            return
        result = np.empty(source.size, self.plan.output_dtype)
        self.plan.step(source, result, start, counts)
        pack_into(target, result, self._packed_out)

    def unpacked(self, source: Array, start: int) -> Array:
        """Return the numbers of the piece `source`, as it travels, that begins at element `start`."""
        if self._packed_in is None:
            return source
        stop = self.element_at(self.input_at(start) + source.size)
        return unpack(source, self._packed_in, stop - start, self.plan.input_dtype)


def merged(tallies: Iterable[Array], into: Array) -> Array:
    """Add the tallies of pieces, in any order, to that of Plan.new_counts, and return it."""
    for counts in tallies:
        into[:3] += counts[:3]
        if counts[3] >= 0 and not 0 <= into[3] <= counts[3]:
            into[3:] = counts[3:]
    return into
