"""Products and sums: dot_general, convolution and reduce, one term after the other as the interpreter adds them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, Protocol

import numpy as np

from requant.lowering.dialects.stablehlo.attributes import DotDimensions
from requant.lowering.dialects.stablehlo.operations import Window
from requant.lowering.evaluate.arrays import Array, padded
from requant.lowering.evaluate.elementwise import binary

# What one step of a loop in Python costs, in products.
_PRODUCTS_OF_STEP = 1 << 9


class Check(Protocol):
    """Takes bytes and products of the budget of an evaluation, and stops work that has become too long."""

    def __call__(self, byte_count: int, products: int = 0) -> None:
        """Raise what ends the work."""


def dot_general(left: Array, right: Array, dims: DotDimensions, dtype: np.dtype[Any], check: Check) -> Array:
    """Return the products summed over the contracting dimensions: batching ones, then left's, then right's.

    Terms are added in their order, in `dtype`, so that floats round and integers wrap as one by one. `check` is
    called with its bytes and products.
    """
    sides = []
    for array, batching, summed in (
        (left, dims.lhs_batching_dimensions, dims.lhs_contracting_dimensions),
        (right, dims.rhs_batching_dimensions, dims.rhs_contracting_dimensions),
    ):
        free = [axis for axis in range(array.ndim) if axis not in (*batching, *summed)]
        order = [*batching, *free, *summed]
        if sorted(order) != list(range(array.ndim)):
            raise ValueError("the dimension numbers do not fit the operand")
        batch = tuple(array.shape[axis] for axis in batching)
        depth = tuple(array.shape[axis] for axis in summed)
        kept = tuple(array.shape[axis] for axis in free)
        sides.append((array.transpose(order).reshape(prod(batch), prod(kept), prod(depth)), batch, kept, depth))
    (rows, batch, left_free, depth), (columns, right_batch, right_free, right_depth) = sides
    if batch != right_batch or depth != right_depth:
        raise ValueError("the operands disagree in batching or contracting dimensions")
    size = prod((*batch, *left_free, *right_free))
    check(size * dtype.itemsize, prod(depth) * (size + _PRODUCTS_OF_STEP))
    total = np.zeros((rows.shape[0], rows.shape[1], columns.shape[1]), dtype)
    rows, columns = rows.astype(dtype), columns.astype(dtype)
    for index in range(rows.shape[2]):
        if not index % 16:
            check(0)
        total = (total + rows[:, :, index, None] * columns[:, None, :, index]).astype(dtype)
    return total.reshape((*batch, *left_free, *right_free))


def convolution(left: Array, right: Array, window: Window, dtype: np.dtype[Any], check: Check) -> Array:
    """Return the convolution, with 0 where the window leaves the input."""
    dims = window.dimensions
    source = left.transpose((dims.input.first, dims.input.second, *dims.input.spatial)).astype(dtype)
    kernel = right.transpose((dims.kernel.second, dims.kernel.first, *dims.kernel.spatial)).astype(dtype)
    if window.batch_groups != 1:
        raise ValueError("batch groups are not computed")
    for axis, flip in enumerate(window.reversal):
        kernel = np.flip(kernel, axis + 2) if flip else kernel
    low, high = ([0, 0, *(pair[end] for pair in window.padding)] for end in (0, 1))
    gaps = [0, 0, *(step - 1 for step in window.lhs_dilation)]
    spread = [size + max(size - 1, 0) * gap for size, gap in zip(source.shape, gaps, strict=True)]
    check(prod(a + max(b, 0) + max(c, 0) for a, b, c in zip(spread, low, high, strict=True)) * dtype.itemsize)
    source = padded(source, np.array(0, dtype), low, high, gaps)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel.shape[2:], window.rhs_dilation, strict=True)]
    sizes = [
        max((size - span) // stride + 1, 0)
        for size, span, stride in zip(source.shape[2:], reach, window.strides, strict=True)
    ]
    groups, outputs = window.feature_groups, kernel.shape[0]
    if groups < 1 or source.shape[1] != kernel.shape[1] * groups or outputs % groups:
        raise ValueError("the features of input and kernel disagree")
    elements = source.shape[0] * outputs * prod(sizes)
    check(elements * dtype.itemsize, prod(kernel.shape[1:]) * (elements + _PRODUCTS_OF_STEP))
    total = np.zeros((source.shape[0], outputs, *sizes), dtype)
    owner = np.arange(outputs) // (outputs // groups)
    for taps in product(*(range(size) for size in kernel.shape[2:])):
        starts = [tap * step for tap, step in zip(taps, window.rhs_dilation, strict=True)]
        cut = tuple(
            slice(start, start + (size - 1) * stride + 1, stride) if size else slice(0, 0)
            for start, size, stride in zip(starts, sizes, window.strides, strict=True)
        )
        piece = source[(slice(None), slice(None), *cut)]
        for feature in range(kernel.shape[1]):
            check(0)
            index: Any = (slice(None), feature, *taps)
            weights = kernel[index].reshape((1, outputs, *(1 for _ in sizes)))
            total = (total + piece[:, owner * kernel.shape[1] + feature] * weights).astype(dtype)
    places = [0] * total.ndim
    places[dims.output.first], places[dims.output.second] = 0, 1
    for index, place in enumerate(dims.output.spatial):
        places[place] = index + 2
    return np.ascontiguousarray(total.transpose(places))


def reduce(name: str, value: Array, initial: Array, axes: Sequence[int], check: Check) -> Array:
    """Combine the elements along `axes` with the operation `name`, in their order, beginning with `initial`."""
    kept = [axis for axis in range(value.ndim) if axis not in axes]
    lines = value.transpose([*axes, *kept]).reshape(prod(value.shape[axis] for axis in axes), -1)
    check(0, lines.size + len(lines) * _PRODUCTS_OF_STEP)
    total = np.full(lines.shape[1], initial, value.dtype)
    for index, line in enumerate(lines):
        if not index % 64:
            check(0)
        combined = binary(name, total, line)
        if combined is None:
            raise ValueError(f"no reduction by {name}")
        total = combined
    return total.reshape([value.shape[axis] for axis in kept])
