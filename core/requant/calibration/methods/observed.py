"""The tensors that ranges are calibrated on, and which of their elements belong to which parameter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.calibration.finished_type import Granularity, PerAxis, PerBlock
from requant.errors import PreconditionError
from requant.formats.elements import FloatElement
from requant.kernels.statistics.reduce import MINIMUM_MAXIMUM, order_by_channel
from requant.plan.channels import Channels, block_counts, channels_of, whole_blocks
from requant.plan.float_arrays import widen

Array = NDArray[Any]

# An element's sign bit, and all others.
_LARGEST_KEY = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FFFFFFFFFFFFFFF}


def blocks_of(granularity: Granularity, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the size of a parameter's block along each dimension, at least 1."""
    match granularity:
        case PerBlock(block_sizes=sizes):
            return sizes
        case PerAxis(axis=along):
            return tuple(1 if axis == along else max(size, 1) for axis, size in enumerate(shape))
        case _:
            return whole_blocks(shape)


@dataclass(frozen=True, slots=True)
class Rows:
    """Elements in the order of their parameters: those of parameter p are values[offsets[p]:offsets[p + 1]].

    Within a parameter they keep the tensor's row-major order. `values` are in the compute dtype.
    """

    values: Array
    offsets: Array

    def part(self, begin: int, end: int) -> Rows:
        """Return the rows of parameters `begin` to `end`."""
        first, last = self.offsets[begin], self.offsets[end]
        return Rows(self.values[first:last], self.offsets[begin : end + 1] - first)

    def extremes(self) -> tuple[Array, Array]:
        """Return the smallest and the largest value of each row, in the compute dtype. No row is empty."""
        return np.minimum.reduceat(self.values, self.offsets[:-1]), np.maximum.reduceat(self.values, self.offsets[:-1])


@dataclass(frozen=True, slots=True)
class Observed:
    """Tensors of one type that were seen one after the other.

    `arrays` are flat, of the element type's dtype, and not empty. `places` says where each came from, as a JSON
    pointer, for messages. `blocks` is the size of a parameter's block along each dimension.
    """

    element: FloatElement
    shape: tuple[int, ...]
    blocks: tuple[int, ...]
    arrays: tuple[Array, ...]
    places: tuple[str, ...]

    @property
    def elements(self) -> int:
        """How many elements all tensors have."""
        return sum(array.size for array in self.arrays)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many parameters there are along each dimension."""
        return block_counts(self.shape, self.blocks)

    @property
    def parameters(self) -> int:
        """How many parameters there are."""
        return prod(self.counts)

    @property
    def channels(self) -> Channels:
        """Which parameter belongs to which element."""
        return channels_of(self.shape, self.blocks)

    def owners(self, channels: Channels) -> Array:
        """Return the parameter of each entry of a layout."""
        return channels.lay_out(np.arange(self.parameters), "<i8")

    def check_not_empty(self) -> None:
        """Raise PreconditionError for a tensor without elements: it has no range."""
        for array, place in zip(self.arrays, self.places, strict=True):
            if array.size == 0:
                raise PreconditionError("the tensor has no elements, so it has no range", pointer=place)

    def extremes(self, index: int) -> tuple[Array, Array]:
        """Return the minimum and the maximum of each parameter in tensor `index`, as f64.

        Raise PreconditionError with the index of the first element that is NaN or infinite.
        """
        array, channels = self.arrays[index], self.channels
        owners = self.owners(channels)
        bits = array.view(f"<i{array.itemsize}")
        largest = _LARGEST_KEY[array.itemsize]
        lows, highs = np.full(owners.size, largest, bits.dtype), np.full(owners.size, -largest - 1, bits.dtype)
        MINIMUM_MAXIMUM[8 * array.itemsize, channels.cycle](bits, 0, *channels.scalars, lows, highs)
        low_keys, high_keys = (np.full(self.parameters, keys, bits.dtype) for keys in (largest, -largest - 1))
        np.minimum.at(low_keys, owners, lows)
        np.maximum.at(high_keys, owners, highs)
        minimums, maximums = self._reals(low_keys), self._reals(high_keys)
        if not (np.isfinite(minimums).all() and np.isfinite(maximums).all()):
            self.refuse_where(
                index, lambda reals: ~np.isfinite(reals), "NaN or infinite; this method requires finite values"
            )
        return minimums, maximums

    def overall_extremes(self) -> tuple[Array, Array]:
        """Return the minimum and the maximum of each parameter over all tensors. Errors as of `extremes`."""
        each = [self.extremes(index) for index in range(len(self.arrays))]
        return reduce(np.minimum, (lows for lows, _ in each)), reduce(np.maximum, (highs for _, highs in each))

    def _reals(self, keys: Array) -> Array:
        """Turn ordered keys back into the f64 values of what they are keys of."""
        shift = 8 * keys.itemsize - 1
        patterns = keys ^ ((keys >> shift) & keys.dtype.type(_LARGEST_KEY[keys.itemsize]))
        with np.errstate(invalid="ignore"):
            # The sum makes -0 a 0.
            return widen(patterns.view(self.element.tensor_dtype), self.element).astype(np.float64) + 0.0

    def refuse_where(self, index: int, wrong: Callable[[Array], Array], detail: str) -> None:
        """Raise PreconditionError for the first element of tensor `index` that is `wrong`, if there is one."""
        faulty = wrong(widen(self.arrays[index], self.element))
        if faulty.any():
            raise PreconditionError(
                f"the element is {detail}", index=int(np.argmax(faulty)), pointer=self.places[index]
            )

    def rows(self, index: int) -> tuple[Rows, int]:
        """Return tensor `index` in the order of its parameters, without NaN, and how many NaN there were.

        Raise PreconditionError for an infinite element, and for a parameter of which every element is NaN.
        """
        self.refuse_where(index, np.isinf, "infinite; this method requires finite values")
        reals = widen(self.arrays[index], self.element)
        offsets = np.concatenate([[0], np.cumsum(self._sizes())])
        if self.parameters > 1:
            channels = self.channels.as_runs()
            ordered = np.empty_like(reals)
            order_by_channel(reals, ordered, 0, *channels.scalars, self.owners(channels), offsets[:-1].copy())
            reals = ordered
        numbers = ~np.isnan(reals)
        missing = int(numbers.size - np.count_nonzero(numbers))
        if missing:
            offsets = np.concatenate([[0], np.cumsum(numbers)])[offsets]
            reals = reals[numbers]
            empty = offsets[:-1] == offsets[1:]
            if empty.any():
                which = int(np.argmax(empty))
                raise PreconditionError(f"every element of range {which} is NaN", pointer=self.places[index])
        return Rows(reals, offsets), missing

    def _sizes(self) -> Array:
        """How many elements each parameter has: blocks, of which the last along a dimension may be short."""
        lengths = [
            np.minimum(block, size - np.arange(count) * block)
            for size, block, count in zip(self.shape, self.blocks, self.counts, strict=True)
        ]
        sizes: Array = reduce(np.multiply.outer, lengths, np.ones((), np.int64)).ravel()
        return sizes
