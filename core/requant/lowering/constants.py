"""Constants of modules: attributes made of numbers, and arrays made of attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr, IntegerType, TensorType
from xdsl.ir import Attribute

Dense = DenseIntOrFPElementsAttr[Any]


def dense(element: Attribute, shape: Sequence[int], values: Sequence[float]) -> Dense:
    """Return a tensor of constants in row-major order; a single value is the value of every element."""
    type_ = TensorType(cast(Any, element), shape)
    return DenseIntOrFPElementsAttr.from_list(type_, cast(Any, list(values)))


def scalar_float(value: float, element: Attribute) -> FloatAttr[Any]:
    """Return a float of the type `element`."""
    return FloatAttr(value, cast(Any, element))


def scalar_integer(value: int, element: IntegerType) -> IntegerAttr[IntegerType]:
    """Return an integer: the lowest bits of `value`."""
    return IntegerAttr(truncated(value, element.width.data), element)


def truncated(value: int, width: int) -> int:
    """Return the lowest `width` bits of `value` as a signed integer."""
    half = 1 << (width - 1)
    return (value + half) % (2 * half) - half
