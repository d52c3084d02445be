"""The real numbers that the elements of a tensor stand for, as arrays that arithmetic can be done on.

Integers stand for themselves, floats for their values, quantized integers for (q - z) * s, each step in binary64, with
s rounded to the expressed type first, as all conversions do.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.small_floats import decode_table
from requant.errors import TensorDataError, UnsupportedError, excerpt
from requant.formats.elements import FloatElement, IntegerElement, integer_dtype
from requant.formats.float_format import round_to_format
from requant.mlir.fit import check_fits
from requant.mlir.printer import print_type
from requant.mlir.types import TensorType, UniformPerAxisType, UniformQuantizedType, UniformType
from requant.plan.operands import static_shape

Array = NDArray[Any]


def as_f64(reals: Array) -> Array:
    """Return f32 or f64 as f64. A signaling NaN becomes a quiet one, which is nothing to warn of."""
    with np.errstate(invalid="ignore"):
        return reals.astype(np.float64, copy=False)


def look_up(table: Array, stored: Array, start: int, side: str) -> Array:
    """Return the entry of `table` for each stored pattern. Raise TensorDataError for a pattern that it has none for.

    `start`, the flat index of the first, and `side` are for the message.
    """
    patterns = stored.view(f"u{stored.itemsize}")
    if patterns.size and patterns.max() >= table.size:
        at = int(np.argmax(patterns >= table.size))
        raise TensorDataError(f"element {start + at} of {side} is {patterns[at]}; its type has {table.size} patterns")
    return np.take(table, patterns)


def _blocks(element: UniformQuantizedType, shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Return (axis, block size, number of blocks) for each axis along which parameters change, in ascending order."""
    if isinstance(element, UniformType):
        return []
    blocks = {element.axis: 1} if isinstance(element, UniformPerAxisType) else dict(element.blocks)
    return [(axis, blocks[axis], -(-shape[axis] // blocks[axis])) for axis in sorted(blocks)]


def parameter_indices(element: UniformQuantizedType, shape: tuple[int, ...], start: int, stop: int) -> Array:
    """Return, for flat elements `start` to `stop`, which entry of the type's list of parameters belongs to each.

    There is one for each block, row-major over the numbers of blocks; an axis has blocks of 1, and a last block may be
    short. Unlike a layout of `requant.plan.channels` this takes memory for these elements only.
    """
    flat = np.arange(start, stop)
    indices = np.zeros(stop - start, np.int64)
    for axis, block, count in _blocks(element, shape):
        position = flat // prod(shape[axis + 1 :])
        position -= position // shape[axis] * shape[axis]
        indices *= count
        indices += position // block
    return indices


@dataclass(frozen=True, slots=True)
class RealValues:
    """How the elements of one tensor become real numbers. No `scales`, no `zero_points`: not quantized."""

    side: str
    tensor: TensorType
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    scales: Array
    zero_points: Array

    @property
    def quantized(self) -> bool:
        """Whether elements are stored integers with a scale."""
        return self.scales.size > 0

    @property
    def always_finite(self) -> bool:
        """Whether no element can be NaN or infinite: integers, and quantized integers unless a scale is extreme."""
        # Stored integers have at most 32 bits, so their distance to a zero point is below 2^33.
        return self.float_element is None and bool(np.all(np.abs(self.scales) < 2.0**990))

    @property
    def float_element(self) -> FloatElement | None:
        """The element type, if it is a float."""
        return self.tensor.element if isinstance(self.tensor.element, FloatElement) else None

    @property
    def affine(self) -> tuple[float, float] | None:
        """z and s of (q - z) * s when they are the same for all elements, which are stored as integers, else None."""
        if self.float_element is not None:
            return None
        if not self.quantized:
            return 0.0, 1.0
        return (float(self.zero_points[0]), float(self.scales[0])) if self.scales.size == 1 else None

    def reals(self, stored: Array, start: int) -> Array:
        """Return the real numbers of `stored`, which begins at flat index `start`.

        They are f32 for floats of at most 32 bits, and f64 for all else.
        """
        element = self.float_element
        if element is not None and element.width >= 32:
            return stored
        if element is not None:
            return look_up(decode_table(element.name), stored, start, self.side)
        if not self.quantized:
            return stored.astype(np.float64)
        indices = self._indices(start, stored.size)
        reals: Array = stored.astype(np.float64)
        with np.errstate(all="ignore"):
            reals -= self.zero_points[indices]
            reals *= self.scales[indices]
        return reals

    def steps(self, start: int, count: int) -> Array:
        """Return the scale of each of `count` quantized elements from flat index `start`, as f64."""
        return np.broadcast_to(self.scales[self._indices(start, count)], (count,))

    def _indices(self, start: int, count: int) -> Array | int:
        element = self.tensor.element
        assert isinstance(element, UniformQuantizedType)
        return 0 if self.scales.size == 1 else parameter_indices(element, self.shape, start, start + count)


def real_values(tensor: TensorType, side: str) -> RealValues:
    """Take a static tensor type apart: integers, floats of at most 64 bits, or a uniform type with integer storage.

    `side` is what messages call the tensor. Raise TypeFitError if the shape is not static or the parameters do not fit
    it, UnsupportedError for other elements.
    """
    shape = static_shape(tensor)
    element = tensor.element
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    dtype = None
    if isinstance(element, FloatElement) or (isinstance(element, IntegerElement) and 1 <= element.width <= 64):
        dtype = element.dtype
    elif isinstance(element, UniformQuantizedType) and isinstance(element.storage.element, IntegerElement):
        check_fits(tensor, short_blocks=True)
        scales = element.scales
        zero_points = element.zero_points
        dtype = integer_dtype(element.storage.width, signed=element.storage.signed)
    if dtype is None:
        raise UnsupportedError(
            f"{side} has elements of {excerpt(print_type(element))}; supported are integers, floats of at most 64 "
            "bits and "
            "uniform quantized types with integer storage"
        )
    if isinstance(element, UniformQuantizedType):
        scales = tuple(round_to_format(scale, element.expressed) for scale in scales)
    return RealValues(side, tensor, shape, dtype, np.array(scales, np.float64), np.array(zero_points, np.float64))
