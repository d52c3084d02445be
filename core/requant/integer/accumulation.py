"""An accumulation: which products of two operands are summed to which element, in which type, and how a sum that the
type does not hold ends. How the sums are arranged in memory is the kind's own (`matmul`, `conv2d`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from requant.errors import PreconditionError, UnsupportedError
from requant.errors.cancellation import check_cancelled
from requant.kernels.contract.tile import TILE_ROWS
from requant.plan.channels import block_counts
from requant.plan.operands import StoredOperand, static_shape
from requant.plan.plan import check_flat, check_within
from requant.profiles.rule import Accumulator, SumOverflow

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


DTYPES: dict[Accumulator, np.dtype[Any]] = {Accumulator.I32: np.dtype("<i4"), Accumulator.I64: np.dtype("<i8")}
INT32 = np.iinfo(np.int32)

# No sum of products reaches this: 2^17 * 2^17 * 2^28. A bias below it cannot make a sum pass int64.
LARGEST_BIAS = 1 << 62

# What is kept of sums, and of rows that are gathered, while they are made: numbers that stay in a cache.
_BLOCK_SUMS = 1 << 18
_BLOCK_NUMBERS = 1 << 21


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


def rows_of_block(columns: int, depth: int) -> int:
    """Return how many rows to sum at a time. Each of them has `columns` sums of `depth` products."""
    fitting = min(_BLOCK_SUMS // max(columns, 1), _BLOCK_NUMBERS // max(depth, 1))
    return max(fitting // TILE_ROWS * TILE_ROWS, TILE_ROWS)


class Block(NamedTuple):
    """Consecutive elements: the flat index of the first, and their sums."""

    start: int
    sums: Array


class Zeros(NamedTuple):
    """The zero points to subtract, as `Integers` has them."""

    lhs: Array
    rhs: Array


@dataclass(frozen=True, slots=True)
class Accumulation(ABC):
    """Sums of `depth` products and a bias. `shape` is theirs; their order in memory is that of `blocks`.

    `overflow` is the rule for sums that `accumulator` does not hold.
    """

    lhs: Integers
    rhs: Integers
    accumulator: Accumulator
    overflow: SumOverflow
    shape: tuple[int, ...]
    depth: int

    @property
    @abstractmethod
    def columns(self) -> int:
        """How many biases there are: one for each index of the last dimension of the sums in memory."""

    @property
    def elements(self) -> int:
        """How many sums there are."""
        return prod(self.shape)

    @property
    def products(self) -> int:
        """How many multiplications and additions they take."""
        return self.elements * self.depth

    @property
    def cost(self) -> int:
        """The cost of the way that will be taken (`requant.integer.columns`); at least the products that are made."""
        return self.products

    @property
    def _sums(self) -> np.dtype[Any]:
        """The dtype in which products are summed, before the rule for overflow."""
        exact = self.overflow is not SumOverflow.WRAP and not self._cannot_pass_int32(np.zeros(1, np.int64))
        return DTYPES[Accumulator.I64 if exact else self.accumulator]

    @abstractmethod
    def raw_blocks(self, lhs: Array, rhs: Array, bias: Array, zeros: Zeros, sums: np.dtype[Any]) -> Iterator[Block]:
        """Yield the sums, of dtype `sums` and modulo its width, block by block. `bias` has that dtype too."""

    @abstractmethod
    def sums_of_rows(self, lhs: Array) -> Array:
        """Return the sum of the numbers of `lhs` that each element multiplies, broadcastable to the order in memory."""

    @abstractmethod
    def sums_of_columns(self, rhs: Array) -> Array:
        """The same of `rhs`."""

    @abstractmethod
    def spread_zeros(self) -> Zeros:
        """Return the zero points that belong to each element, broadcastable to the order in memory."""

    def blocks(self, lhs: Array, rhs: Array, bias: Array | None = None) -> Iterator[Block]:
        """Yield the sums of flat stored integers in the accumulator, block by block. `bias`: int64, for each column.

        Raise PreconditionError naming the first element whose sum the accumulator does not hold, where the rule for
        overflow is that, and for a bias that 62 bits do not hold.
        """
        if self.elements == 0:
            return
        added = np.zeros(self.columns, np.int64) if bias is None else bias
        zeros = Zeros(self.lhs.zero_points, self.rhs.zero_points)
        kept = DTYPES[self.accumulator]
        exact = DTYPES[Accumulator.I64]
        if kept == exact or self._cannot_pass_int32(added):
            if kept == exact:
                self._check_bias(added)
            for block in self.raw_blocks(lhs, rhs, added.astype(kept), zeros, kept):
                yield block
                check_cancelled()
            return
        self._check_bias(added)
        for start, sums in self.raw_blocks(lhs, rhs, added, zeros, exact):
            yield Block(start, settle(sums, self.overflow, start))
            check_cancelled()

    def _cannot_pass_int32(self, bias: Array) -> bool:
        if self.overflow is SumOverflow.WRAP:
            return True
        products = self.depth * self.lhs.largest_difference * self.rhs.largest_difference
        return products + largest(bias) <= INT32.max

    @staticmethod
    def _check_bias(bias: Array) -> None:
        outside = (bias <= -LARGEST_BIAS) | (bias >= LARGEST_BIAS)
        if outside.any():
            index = int(np.argmax(outside))
            raise PreconditionError(
                f"bias {index} is {int(bias[index])}; its magnitude must be below 2^62", index=index
            )

    def run(self, lhs: Array, rhs: Array, bias: Array | None = None) -> Array:
        """Return all sums, flat in the order of `blocks`. See there."""
        accumulators = np.empty(self.elements, DTYPES[self.accumulator])
        for start, sums in self.blocks(lhs, rhs, bias):
            accumulators[start : start + sums.size] = sums
        return accumulators
