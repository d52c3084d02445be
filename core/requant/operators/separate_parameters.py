"""Tensors with separate scales and zero points, as quantized types.

The types are made without their text, so that scales may be of any kind: an operator's own checks say which it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.small_floats import decode
from requant.description import TensorValue
from requant.errors import LimitError, ParameterError, TensorDataError, TypeFitError
from requant.formats.elements import FloatElement, IntegerElement
from requant.mlir.types import (
    StorageType,
    TensorType,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
    UniformType,
)
from requant.plan.channels import block_counts
from requant.plan.float_arrays import COMPUTE_DTYPES, widen

Array = NDArray[Any]


MAX_SCALES = 1 << 20
MAX_FACTORS = 1 << 18
"""The output channels of a quantized product, such as the entries of a large vocabulary."""


def check_number_of_scales(count: int, pointer: str | None = None, most: int = MAX_SCALES) -> None:
    """Raise LimitError for more scales than are planned: each of them is a number of Python's for a moment.

    `most` is MAX_FACTORS where a factor is derived from each, which takes some five microseconds.
    """
    if count > most:
        raise LimitError(f"there are more than {most} scales", limit=most, pointer=pointer)


def normalized_axis(axis: int, rank: int) -> int:
    """Return an axis from the start, or raise ParameterError."""
    if not -rank <= axis < rank:
        raise ParameterError(f"axis is {axis}; of rank {rank} it is {-rank} to {rank - 1}", pointer="/attributes/axis")
    return axis % rank


def joined_shape(inputs: Mapping[str, TensorValue], names: Sequence[str], axis: int) -> tuple[int, ...]:
    """Return the shape of operands one after the other along an axis. Raise TypeFitError if they differ elsewhere."""
    shapes = [inputs[name].shape for name in names]
    first = shapes[0]
    for name, shape in zip(names, shapes, strict=True):
        if (len(shape), *shape[:axis], *shape[axis + 1 :]) != (len(first), *first[:axis], *first[axis + 1 :]):
            raise TypeFitError(
                f"{name} has shape {list(shape)}, and {names[0]} {list(first)}; they differ along axis {axis} only",
                pointer=f"/inputs/{name}",
            )
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


@dataclass(frozen=True, slots=True)
class Granularity:
    """One scale in all, one for each index of `axis`, or one for each block, whose size along each axis is `blocks`."""

    axis: int | None = None
    blocks: tuple[int, ...] | None = None

    def counts(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the scales of a tensor in blocks. A last block may be short."""
        assert self.blocks is not None
        return block_counts(shape, self.blocks)


def reals_of(tensor: TensorValue) -> Array:
    """Return the numbers of scales, or of x, as f64: exact."""
    element = tensor.type.element
    if isinstance(element, FloatElement):
        reals = widen(tensor.data, element) if element.name in COMPUTE_DTYPES else decode(tensor.data, element.name)
        return reals.astype(np.float64)
    return tensor.data.astype(np.float64)


def for_each(scales: Array, shape: tuple[int, ...], granularity: Granularity) -> Array:
    """Return the scale, or zero point, of each element of a flat tensor of `shape`."""
    if granularity.blocks is not None:
        laid = scales.reshape(granularity.counts(shape))
        for axis, (size, block) in enumerate(zip(shape, granularity.blocks, strict=True)):
            laid = np.take(laid, np.arange(size) // block, axis)
        return laid.reshape(-1)
    if granularity.axis is None:
        return np.broadcast_to(scales, prod(shape))
    laid = scales.reshape([-1 if each == granularity.axis else 1 for each in range(len(shape))])
    return np.broadcast_to(laid, shape).reshape(-1)


def check_integers(tensor: TensorValue, name: str) -> None:
    """Raise TensorDataError for a number that an integer type of few bits does not hold."""
    element = tensor.type.element
    if not isinstance(element, IntegerElement) or element.width == tensor.data.itemsize * 8 or not tensor.data.size:
        return
    wrong = (tensor.data < element.minimum) | (tensor.data > element.maximum)
    if wrong.any():
        index = int(np.argmax(wrong))
        raise TensorDataError(
            f"element {index} is {tensor.data[index]}; {element.name} holds {element.minimum} to {element.maximum}",
            pointer=f"/inputs/{name}",
        )


def storage_of(element: IntegerElement | FloatElement) -> StorageType:
    """Return the storage type of stored numbers."""
    if isinstance(element, FloatElement):
        return StorageType.unbounded(element, signed=True)
    return StorageType.unbounded(IntegerElement(element.width), signed=element.signed)


def quantized_type(
    shape: tuple[int, ...],
    granularity: Granularity,
    element: IntegerElement | FloatElement,
    expressed: FloatElement,
    scales: Array,
    zero_points: Array | None,
) -> TensorType:
    """Return x with its parameters as a type. Scales may be of any kind: operators take what no type text can say."""
    check_number_of_scales(scales.size)
    storage = storage_of(element)
    listed = tuple(scales.tolist())
    zeros = (0,) * len(listed) if zero_points is None else tuple(zero_points.tolist())
    quantized: UniformQuantizedType
    if granularity.blocks is not None:
        blocks = tuple(enumerate(granularity.blocks))
        quantized = UniformSubChannelType(storage, expressed, blocks, granularity.counts(shape), listed, zeros)
    elif granularity.axis is not None:
        quantized = UniformPerAxisType(storage, expressed, granularity.axis, listed, zeros)
    else:
        quantized = UniformType(storage, expressed, listed[0], zeros[0])
    return TensorType(shape, quantized)
