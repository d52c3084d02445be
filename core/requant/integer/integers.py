"""One operand of an integer operation: stored integers of a shape, and their zero points. Scales are not its business.

Stored integers have at most 16 bits, so that a product of two differences to zero points has at most 34.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import UnsupportedError
from requant.plan.channels import block_counts
from requant.plan.operands import StoredOperand, static_shape
from requant.plan.plan import check_flat, check_within

Array = NDArray[Any]

STORAGES = tuple(f"{sign}{width}" for sign in "iu" for width in range(2, 17))


def largest(array: Array) -> int:
    """The largest magnitude in an array of integers, 0 in an empty one."""
    return max(abs(int(array.min())), abs(int(array.max()))) if array.size else 0


@dataclass(frozen=True, slots=True)
class Integers:
    """`zero_points`: int64, of the rank of `shape`, and along each dimension as long as that or 1.

    Stored integers lie within [lowest, highest], which `dtype` may hold more than.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    lowest: int
    highest: int
    zero_points: Array

    @classmethod
    def of_operand(cls, operand: StoredOperand) -> Integers:
        """Take the integers of a tensor type, per tensor or per axis."""
        shape = static_shape(operand.tensor)
        counts = tuple(count or 1 for count in block_counts(shape, operand.blocks))
        zeros = np.array(operand.zero_points, np.int64).reshape(counts)
        return cls(shape, operand.dtype, operand.lowest, operand.highest, zeros)

    @classmethod
    def of_array(cls, array: Array, zero_points: Array | int = 0) -> Integers:
        """Take an array of int8, uint8, int16 or uint16. Raise UnsupportedError for another dtype.

        `zero_points` of a lower rank belong to the last dimensions, as in numpy.
        """
        if array.dtype.kind not in "iu" or array.dtype.itemsize > 2:
            raise UnsupportedError(f"integers have 8 or 16 bits here; these are {array.dtype}")
        limits = np.iinfo(array.dtype)
        zeros = np.asarray(zero_points, np.int64)
        zeros = zeros.reshape((1,) * (array.ndim - zeros.ndim) + zeros.shape)
        return cls(array.shape, array.dtype, int(limits.min), int(limits.max), zeros)

    @property
    def is_unsigned(self) -> bool:
        return self.dtype.kind == "u"

    @property
    def largest_stored(self) -> int:
        """The largest magnitude of a stored integer once unsigned 16-bit ones are made signed."""
        return 1 << 15 if self.dtype == np.uint16 else max(-self.lowest, self.highest)

    @property
    def largest_difference(self) -> int:
        """The largest magnitude of a stored integer less its zero point."""
        return max(largest(self.lowest - self.zero_points), largest(self.highest - self.zero_points))

    def check(self, array: Array) -> None:
        """Raise TensorDataError unless a flat array holds integers of this operand."""
        check_flat(array, self.dtype, prod(self.shape), "the operand")
        check_within(array, self.lowest, self.highest)
