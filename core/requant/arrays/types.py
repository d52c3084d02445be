"""Types as texts, and from arrays of scales and zero points."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from requant.arrays.elements import element_of
from requant.calibration.finished_type import Granularity, PerAxis, PerBlock, PerTensor, finish_type
from requant.errors import TypeFitError, TypeTextError, UnsupportedError, excerpt
from requant.formats.elements import FloatElement
from requant.mlir import parse_storage, parse_type, print_type
from requant.mlir.diagnostics import EXAMPLE_TYPE
from requant.mlir.types import Type
from requant.mlir.verifier import block_fault, fault
from requant.plan.operands import element_name

__all__ = ["parse_type", "print_type", "quantized_type"]


def quantized_type(
    storage: str | DTypeLike,
    scale: ArrayLike,
    zero_point: ArrayLike = 0,
    *,
    axis: int | None = None,
    block_sizes: tuple[int, ...] | None = None,
    shape: tuple[int, ...] | None = None,
    expressed: str = "f32",
) -> str:
    """Return the type with these scales and zero points, as text.

    storage: such as `i8`, `u4` or `i8<-127:127>`; or a dtype, such as `np.int8` or `ml_dtypes.float8_e4m3fn`.
    scale: one number; with `axis` one for each of its indices; with `block_sizes` an array of one for each block of a
    tensor of `shape`, ceil(shape / block_sizes).
    zero_point: one whole number, or as many as there are scales.
    axis, shape: a negative axis counts from the last of a tensor of `shape`.
    expressed: the type of the real numbers: `f32`, `bf16`, `f16` or `f64`.

    >>> quantized_type("i8", 0.5, 3)
    '!quant.uniform<i8:f32, 5.000000e-01:3>'
    >>> quantized_type("i8", [0.5, 0.25], axis=0)
    '!quant.uniform<i8:f32:0, {5.000000e-01,2.500000e-01}>'

    Raise TypeTextError for a storage that is none, TypeFitError if the numbers do not fit together or are none,
    PreconditionError with the index of a scale that no type can have.
    """
    if not isinstance(storage, str):
        storage = element_name(element_of(np.dtype(storage)))
    scales = _scales(scale)
    granularity: Granularity = PerTensor()
    needed: tuple[int, ...] = ()
    if block_sizes is not None:
        if axis is not None or shape is None or len(shape) != len(block_sizes):
            raise TypeFitError("block_sizes need the shape of the tensor, one size per dimension, and no axis")
        for size in block_sizes:
            if wrong := block_fault(size):
                raise TypeFitError(wrong)
        granularity = PerBlock(tuple(shape), tuple(block_sizes))
        needed = granularity.scale_shape
    elif axis is not None:
        granularity = PerAxis(axis_of_rank(axis, None if shape is None else len(shape)), scales.size)
        needed = (scales.size,) if shape is None else (shape[granularity.axis],)
    if scales.shape != needed and not (scales.size == 1 and granularity.count == 1):
        raise TypeFitError(f"scale has shape {scales.shape}; it needs {needed}, or an axis or block_sizes")
    zero_points = _zero_points(zero_point, scales.shape)
    type_ = finish_type(parse_storage(storage), float_named(expressed), scales.reshape(-1), zero_points, granularity)
    if wrong := fault(type_):
        raise TypeFitError(wrong)
    return print_type(type_)


def _scales(values: ArrayLike) -> NDArray[np.float64]:
    try:
        scales = np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeFitError(f"scale is no array of numbers: {excerpt(str(error))}") from None
    if not scales.size:
        raise TypeFitError("scale is empty; a type has at least one")
    return scales


def _zero_points(zero_points: ArrayLike, shape: tuple[int, ...]) -> list[int]:
    try:
        array = np.asarray(zero_points)
    except ValueError as error:
        raise TypeFitError(f"zero_point is no array of numbers: {excerpt(str(error))}") from None
    if array.size != 1 and array.shape != shape:
        raise TypeFitError(f"zero_point has shape {array.shape}; expected one number, or the shape of scale, {shape}")
    whole = [_whole(each, index) for index, each in enumerate(array.reshape(-1).tolist())]
    return whole * prod(shape) if array.size == 1 else whole


def _whole(number: Any, index: int) -> int:
    try:
        whole = int(number)
    except (TypeError, ValueError, OverflowError):
        whole = None
    if whole is None or whole != number or not -(1 << 63) <= whole < 1 << 63:
        raise TypeFitError(f"zero_point {index} is {excerpt(repr(number))}; expected a whole number of 64 bits")
    return whole


def axis_of_rank(axis: int, rank: int | None) -> int:
    """Return an axis counted from the first, as types have it. Raise TypeFitError for one that a tensor has not.

    `rank`: of the tensor; None where it is not known, and a negative axis is refused.
    """
    if rank is None:
        if axis < 0:
            raise TypeFitError(f"axis is {axis}; give shape, the tensor's, or an axis counted from the first, 0")
        return axis
    if not -rank <= axis < rank:
        raise TypeFitError(f"axis {axis} is none of a tensor of rank {rank}")
    return axis % rank


# Types come as texts again and again; reading one takes longer than quantizing a thousand elements.
_parsed = lru_cache(maxsize=64)(parse_type)


def read_type(type_: str | Type | None) -> Type:
    """Return a type that is given as text or parsed. Raise TypeTextError."""
    if isinstance(type_, Type):
        return type_
    if not isinstance(type_, str):
        detail = f"a type is needed, as text or parsed, such as '{EXAMPLE_TYPE}'; given is {excerpt(repr(type_))}"
        raise TypeTextError(detail, offset=0)
    return _parsed(type_)


def float_named(text: str) -> FloatElement:
    """Return the float type of that text. Raise TypeTextError or UnsupportedError."""
    element = parse_type(text)
    if not isinstance(element, FloatElement):
        raise UnsupportedError(f"{excerpt(text)} is not a float type; usually f32 is meant")
    return element
