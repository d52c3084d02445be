"""Accumulators: what their sums can reach, and how a sum that is too large ends."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import PreconditionError
from core.profiles.integer_rule import Accumulator, SumOverflow

Array = NDArray[Any]

DTYPES: dict[Accumulator, np.dtype[Any]] = {Accumulator.I32: np.dtype("<i4"), Accumulator.I64: np.dtype("<i8")}
INT32 = np.iinfo(np.int32)

# No sum of products reaches this: 2^17 * 2^17 * 2^28. A bias below it cannot make a sum pass int64.
LARGEST_BIAS = 1 << 62


def largest(array: Array) -> int:
    """The largest magnitude in an array of integers, 0 in an empty one."""
    return max(abs(int(array.min())), abs(int(array.max()))) if array.size else 0


def settle(sums: Array, overflow: SumOverflow, start: int) -> Array:
    """Return exact int64 sums as int32. `start` is the flat index of the first, for the error's message.

    Raise PreconditionError naming the first that int32 does not hold, where the rule is that.
    """
    if overflow is SumOverflow.SATURATE:
        return np.clip(sums, INT32.min, INT32.max).astype(np.int32)
    if overflow is SumOverflow.ERROR and sums.size:
        outside = (sums < INT32.min) | (sums > INT32.max)
        if outside.any():
            index = int(np.argmax(outside))
            raise PreconditionError(
                f"the sum of element {start + index} is {int(sums[index])}, and its accumulator is i32",
                index=start + index,
            )
    return sums.astype(np.int32)
