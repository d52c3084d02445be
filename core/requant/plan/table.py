"""Plans from numbers of 8 bits to numbers of 8 bits, with one parameter for all, as the table of their 256 results.

The table is made by the plan itself, of all numbers that there are, so that it holds what the plan's own arithmetic
gives. That takes as long as the arithmetic of some ten thousand elements: it is made when so many were converted, by
one call or by many.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np

from requant.kernels.convert.byte_table import HAS_TABLES, look_up
from requant.plan.plan import Array, Plan

# As many elements as are converted in the time that a table takes to be made.
_WORTH = 65_536
_NEVER = 1 << 62
_ENTRIES = 256


class Table:
    """The table of one plan, once it is built. Threads may use it side by side; at worst two of them build the same."""

    def __init__(self) -> None:
        self._left = _WORTH
        self._built: tuple[Array, Array] | None = None

    @property
    def is_built(self) -> bool:
        """Whether there is a table."""
        return self._built is not None

    def convert(self, plan: TablePlan, source: Array, target: Array, counts: Array) -> bool:
        """Do what `plan.step` does, or return False: there is no table, or none yet."""
        if self._built is None:
            self._left -= source.size
            if self._left > 0:
                return False
            self._left = _NEVER
            self._built = _build(plan)
            if self._built is None:
                return False
        look_up(source, target, *self._built, counts)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan(Plan):
    """A plan that takes a table, if it has one. The result of an element depends on nothing but the element then."""

    table: Table | None = field(default=None, repr=False, compare=False)

    @abstractmethod
    def compute(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """Do what Plan.step does, by arithmetic."""

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        if self.table is None or not self.table.convert(self, source, target, counts):
            self.compute(source, target, start, counts)


def table_for(input_dtype: np.dtype[np.generic], output_dtype: np.dtype[np.generic], parameters: int) -> Table | None:
    """Return the table of a plan, still to be built, where it is faster than arithmetic: None elsewhere."""
    small = input_dtype.itemsize == output_dtype.itemsize == 1
    return Table() if HAS_TABLES and small and parameters == 1 else None


def _saturated(plan: TablePlan, numbers: Array, count: int, side: int) -> tuple[int, int] | None:
    """Return the first byte of those that saturate on a side, and how many they are: those at one end of `numbers`.

    They are tried at both ends, and None returned if they are at neither.
    """
    if count == 0:
        return 0, 0
    for end in (numbers[:count], numbers[-count:]):
        counts = plan.new_counts()
        plan.compute(end, np.empty(count, plan.output_dtype), 0, counts)
        if counts[side] == count:
            return int(end[0]) & (_ENTRIES - 1), count
    return None


def _build(plan: TablePlan) -> tuple[Array, Array] | None:
    """Return the entries, and what saturates as `requant.kernels.convert.byte_table` takes it.

    None, if a number has no result, or if what saturates on a side is not at one end, or is all there is.
    """
    limits = np.iinfo(plan.input_dtype)
    lowest, highest = plan.input_bounds or (limits.min, limits.max)
    numbers = np.arange(lowest, highest + 1, dtype=plan.input_dtype)
    results, counts = np.empty(numbers.size, plan.output_dtype), plan.new_counts()
    plan.compute(numbers, results, 0, counts)
    low, high, missing, undefined = counts[:4].tolist()
    if missing or undefined >= 0 or _ENTRIES in (low, high):
        return None
    ends = _saturated(plan, numbers, low, 0), _saturated(plan, numbers, high, 1)
    if ends[0] is None or ends[1] is None:
        return None
    entries = np.zeros(_ENTRIES, np.uint8)
    entries[numbers.view(np.uint8)] = results.view(np.uint8)
    return entries, np.array([*ends[0], *ends[1]], np.int64)
