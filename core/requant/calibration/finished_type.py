"""The quantized type that scales and zero points make: per tensor, per axis, or in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from numpy.typing import NDArray

from requant.errors import ParameterError, PreconditionError
from requant.formats.elements import FloatElement
from requant.formats.float_format import round_to_format
from requant.mlir.lexer import MAXIMUM_LIST_LENGTH
from requant.mlir.types import (
    StorageType,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
    UniformType,
)
from requant.mlir.verifier import blockwise_storage_fault, scale_fault
from requant.plan.channels import block_counts

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class PerTensor:
    """One scale for the whole tensor."""

    @property
    def count(self) -> int:
        return 1

    @property
    def scale_shape(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class PerAxis:
    """One scale for each index along `axis`."""

    axis: int
    count: int

    @property
    def scale_shape(self) -> tuple[int, ...]:
        return (self.count,)


@dataclass(frozen=True, slots=True)
class PerBlock:
    """One scale for each block: `block_sizes` has the block's size along each dimension of `shape`, all at least 1.

    A block as long as its dimension, or longer, is all of it. A last block may be short. The scales are row-major over
    `scale_shape`, ceil(dimension / block).
    """

    shape: tuple[int, ...]
    block_sizes: tuple[int, ...]

    @property
    def scale_shape(self) -> tuple[int, ...]:
        return block_counts(self.shape, self.block_sizes)

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """The axes that have more than one scale, with their block sizes, as the type writes them."""
        pairs = enumerate(zip(self.shape, self.block_sizes, strict=True))
        return tuple((axis, block) for axis, (size, block) in pairs if block < size)

    @property
    def count(self) -> int:
        return prod(self.scale_shape)


Granularity = PerTensor | PerAxis | PerBlock


def scales_of_type(
    scales: Array | Sequence[float], expressed: FloatElement, granularity: Granularity
) -> tuple[float, ...]:
    """Return the scales as the finished type has them: in blocks rounded to the expressed type (RNE), as MLIR does.

    Where no type has one of them, they are returned as they are.
    """
    numbers = tuple(float(scale) for scale in scales)
    if not isinstance(granularity, PerBlock) or any(scale_fault(scale, expressed) for scale in numbers):
        return numbers
    return tuple(round_to_format(scale, expressed) for scale in numbers)


def finish_type(
    storage: StorageType,
    expressed: FloatElement,
    scales: Array | Sequence[float],
    zero_points: Array | Sequence[int],
    granularity: Granularity,
) -> UniformQuantizedType:
    """Return the type with these parameters; there are `granularity.count` of each. It has no fault.

    Its scales are those of `scales_of_type`. Raise PreconditionError with the index of the first scale that no type can
    have: 0, or outside of the expressed type.
    """
    count = granularity.count
    if len(scales) != count or len(zero_points) != count:
        raise ParameterError(f"there are {len(scales)} scales and {len(zero_points)} zero points; {count} are needed")
    if count > MAXIMUM_LIST_LENGTH:
        raise ParameterError(f"a type has at most {MAXIMUM_LIST_LENGTH} scales; these are {count}")
    numbers = [float(scale) for scale in scales]
    for index, scale in enumerate(numbers):
        if fault := scale_fault(scale, expressed):
            raise PreconditionError(f"no type has scale {index}: {fault}", index=index)
    integers = [int(zero_point) for zero_point in zero_points]
    match granularity:
        case PerTensor():
            return UniformType(storage, expressed, numbers[0], integers[0])
        case PerAxis(axis=axis):
            return UniformPerAxisType(storage, expressed, axis, tuple(numbers), tuple(integers))
        case PerBlock():
            if fault := blockwise_storage_fault(storage.element):
                raise ParameterError(fault)
            if not granularity.shape:
                raise ParameterError("a scalar has no blocks; the shape needs at least one dimension")
            stated = scales_of_type(numbers, expressed, granularity)
            return UniformSubChannelType(
                storage, expressed, granularity.blocks, granularity.scale_shape, stated, tuple(integers)
            )
