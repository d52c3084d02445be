"""Operands as callers give them, read: lists of scales and zero points, and the type that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from requant.errors import ParameterError, TypeFitError, UnsupportedError
from requant.formats.elements import FLOATS, FloatElement
from requant.mlir.lexer import MAXIMUM_LIST_LENGTH
from requant.mlir.parser import MAXIMUM_RANK
from requant.mlir.types import (
    StorageType,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
    UniformType,
)
from requant.mlir.verifier import FLOAT_STORAGES, blockwise_zero_point_range, scale_fault
from requant.translation.translation import Rounding, rounded_to, stored_as


def read_storage(operands: dict[str, Any], name: str, taken: Sequence[str]) -> StorageType:
    """Return the storage that an operand names. Raise UnsupportedError for one that no type of MLIR has."""
    given = operands[name]
    if given not in taken:
        raise UnsupportedError(f"{name} is one of {', '.join(taken)}", pointer=f"/{name}")
    if given in FLOATS and given not in FLOAT_STORAGES:
        listed = ", ".join(sorted(FLOAT_STORAGES))
        raise UnsupportedError(
            f"no type of MLIR stores {given}; small floats as storage are {listed}", pointer=f"/{name}"
        )
    return stored_as(given)


def read_scales(
    operands: dict[str, Any], name: str, expressed: FloatElement, held: str
) -> tuple[tuple[float, ...], tuple[Rounding, ...]]:
    """Return scales as their type `held` holds them, and what was rounded. Raise ParameterError for one of no type."""
    scales = operands[name]
    if not 1 <= len(scales) <= MAXIMUM_LIST_LENGTH:
        raise ParameterError(f"{name} has 1 to {MAXIMUM_LIST_LENGTH} scales", pointer=f"/{name}")
    numbers = tuple(float(scale) for scale in scales)
    for index, scale in enumerate(numbers):
        if found := scale_fault(scale, expressed):
            raise ParameterError(f"no type has {name} {index}: {found}", index=index, pointer=f"/{name}/{index}")
    return rounded_to(numbers, FLOATS[held])


def read_zero_points(operands: dict[str, Any], name: str, count: int, lowest: int, highest: int) -> tuple[int, ...]:
    """Return zero points, zeros where they are absent. Raise TypeFitError or ParameterError for those of no use."""
    given = operands.get(name)
    if given is None:
        return (0,) * count
    if len(given) != count:
        raise TypeFitError(f"there are {len(given)} zero points and {count} scales", pointer=f"/{name}")
    for index, zero_point in enumerate(given):
        if not lowest <= zero_point <= highest:
            detail = f"{name} {index} must be {lowest} to {highest}" if lowest != highest else f"{name} must be 0"
            raise ParameterError(detail, index=index, pointer=f"/{name}/{index}")
    return tuple(given)


def zero_point_bounds(storage: StorageType) -> tuple[int, int]:
    """Return the zero points that the storage's own type holds: 0 for floats."""
    return (0, 0) if isinstance(storage.element, FloatElement) else storage.default_bounds


def normal_axis(axis: int, shape: tuple[int, ...] | None, pointer: str) -> int:
    """Return an axis from the start. Raise ParameterError for one out of range, or negative without a shape."""
    if shape is None:
        if axis < 0:
            raise ParameterError("a negative axis counts from the end: give the shape", pointer=pointer)
        if axis >= MAXIMUM_RANK:
            raise ParameterError(f"axis is below {MAXIMUM_RANK}", pointer=pointer)
        return axis
    if not -len(shape) <= axis < len(shape):
        raise ParameterError(
            f"axis is {axis}; of rank {len(shape)} it is {-len(shape)} to {len(shape) - 1}", pointer=pointer
        )
    return axis % len(shape)


def uniform(
    storage: StorageType, expressed: FloatElement, axis: int | None, scales: tuple[float, ...], zeros: tuple[int, ...]
) -> UniformQuantizedType:
    """Return a type per tensor, or per axis if there is one."""
    if axis is None:
        return UniformType(storage, expressed, scales[0], zeros[0])
    return UniformPerAxisType(storage, expressed, axis, scales, zeros)


def blocked(
    storage: StorageType,
    expressed: FloatElement,
    blocks: Sequence[int],
    counts: tuple[int, ...],
    scales: tuple[float, ...],
    zeros: tuple[int, ...],
    pointer: str,
) -> UniformSubChannelType:
    """Return a sub-channel type, whose blocks are written for dimensions that have more than one."""
    lowest, highest = blockwise_zero_point_range(storage)
    if not all(lowest <= zero <= highest for zero in zeros):
        raise ParameterError(f"zero points of blocks are {lowest} to {highest}", pointer=pointer)
    pairs = tuple((axis, block) for axis, (block, count) in enumerate(zip(blocks, counts, strict=True)) if count > 1)
    return UniformSubChannelType(storage, expressed, pairs, counts, scales, zeros)
