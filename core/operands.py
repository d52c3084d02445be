"""The two kinds of tensor that a conversion connects, checked and taken apart: floats and uniformly quantized integers.

Two questions are asked here in turn: does the type fit the tensor (TypeFitError), does the profile take it
(UnsupportedError). That it is a type at all was the parser's answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from core.channels import Channels, channels_along
from core.elements import FloatElement, IntegerElement, integer_dtype
from core.errors import TypeFitError, UnsupportedError, excerpt
from core.mlir.fit import check_fits
from core.mlir.printer import print_type
from core.mlir.stablehlo import stablehlo_reason
from core.mlir.types import ElementType, StorageType, TensorType, Type, UniformPerAxisType, UniformType

_STORAGE_NAMES = "i8, u8, i16, u16 and i32"
_SIGNED_WIDTHS = (8, 16, 32)
_UNSIGNED_WIDTHS = (8, 16)


def _shape_text(shape: tuple[int | None, ...]) -> str:
    return "x".join("?" if dimension is None else str(dimension) for dimension in shape) or "scalar"


def static_shape(tensor: TensorType) -> tuple[int, ...]:
    """Return the shape of a ranked tensor without dynamic dimensions, or raise TypeFitError."""
    if tensor.shape is None:
        raise TypeFitError("the tensor is unranked; data need a type with a shape")
    shape = tuple(dimension for dimension in tensor.shape if dimension is not None)
    if len(shape) != len(tensor.shape):
        raise TypeFitError(f"the shape {_shape_text(tensor.shape)} has dynamic dimensions; data need a static shape")
    return shape


def bind(given: Type, shape: tuple[int, ...]) -> TensorType:
    """Return `given` as a tensor of exactly `shape`: an element type takes it, `?` and `*` are filled in.

    Raise TypeFitError if a dimension or the rank disagrees, or if the type cannot be the type of a tensor.
    """
    if isinstance(given, TensorType):
        if given.shape is not None and (
            len(given.shape) != len(shape)
            or any(declared not in (None, size) for declared, size in zip(given.shape, shape, strict=True))
        ):
            raise TypeFitError(
                f"the type has shape {_shape_text(given.shape)}, and the tensor that it is put on {_shape_text(shape)}"
            )
        return replace(given, shape=shape)
    if isinstance(given, ElementType):
        return TensorType(shape, given)
    raise TypeFitError(f"{print_type(given)} is not the type of a tensor")


def float_dtype(tensor: TensorType, side: str) -> np.dtype[Any]:
    """Return the numpy dtype of a tensor of floats that conversions take (f32), or raise UnsupportedError."""
    element = tensor.element
    if not isinstance(element, FloatElement) or element.name != "f32" or element.dtype is None:
        raise UnsupportedError(
            f"the {side} has elements of {excerpt(print_type(element))}; this operation takes f32 there"
        )
    return element.dtype


@dataclass(frozen=True, slots=True)
class QuantizedOperand:
    """A tensor of uniformly quantized integers. `scales` are f64 as the type keeps them; one entry for each channel."""

    tensor: TensorType
    expressed: FloatElement
    storage_name: str
    dtype: np.dtype[Any]
    minimum: int
    maximum: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None

    @property
    def channels(self) -> Channels:
        return channels_along(static_shape(self.tensor), self.axis)

    @property
    def elements(self) -> int:
        return prod(static_shape(self.tensor))

    def check_expressed(self, floats: TensorType) -> None:
        """Raise UnsupportedError unless the tensor of floats on the other side has this type's expressed type."""
        if floats.element != self.expressed:
            raise UnsupportedError(
                f"the quantized type expresses {self.expressed.name}, and the other side has elements of "
                f"{excerpt(print_type(floats.element))}; they must be the same"
            )

    def check_symmetric(self, side: str, reason: str) -> None:
        """Raise UnsupportedError, giving `reason`, unless every zero point is 0."""
        for channel, zero_point in enumerate(self.zero_points):
            if zero_point:
                raise UnsupportedError(f"{reason}; channel {channel} of the {side} has zero point {zero_point}")


def _storage_name(storage: StorageType) -> str:
    """`i8`, `u8`...: what is computed with, however the type spells it."""
    return f"{'i' if storage.signed else 'u'}{storage.width}"


def _storage_dtype(storage: StorageType, side: str) -> np.dtype[Any]:
    widths = _SIGNED_WIDTHS if storage.signed else _UNSIGNED_WIDTHS
    if isinstance(storage.element, IntegerElement) and storage.width in widths:
        return integer_dtype(storage.width, signed=storage.signed)
    name = _storage_name(storage) if isinstance(storage.element, IntegerElement) else "non-integer"
    raise UnsupportedError(f"the {side} has {name} storage; this operation takes {_STORAGE_NAMES}")


def _check_zero_points(zero_points: tuple[int, ...], bounds: tuple[int, int], side: str) -> None:
    lowest, highest = bounds
    for channel, zero_point in enumerate(zero_points):
        if not lowest <= zero_point <= highest:
            raise UnsupportedError(
                f"zero point {zero_point} of channel {channel} of the {side} is outside of {lowest} to {highest}"
            )


def quantized_operand(
    tensor: TensorType, side: str, profile: str, zero_point_bounds: tuple[int, int] | None = None
) -> QuantizedOperand:
    """Check a tensor type for a conversion under `profile` and take it apart. `side` is "input" or "output".

    Zero points must lie in `zero_point_bounds`, by default what the storage holds. Raise TypeFitError if the parameters
    do not fit the shape, UnsupportedError if it is not a uniform type over a storage that is taken, if a zero point is
    out of bounds, or if the profile's own rules refuse it.
    """
    element = tensor.element
    if not isinstance(element, (UniformType, UniformPerAxisType)):
        raise UnsupportedError(
            f"the {side} has elements of {excerpt(print_type(element))}; this operation takes "
            "!quant.uniform there, per tensor or per axis"
        )
    check_fits(tensor)
    if profile == "stablehlo" and (reason := stablehlo_reason(tensor)) is not None:
        raise UnsupportedError(f"StableHLO does not take the {side}: {reason}")
    dtype = _storage_dtype(element.storage, side)
    scales, zero_points, axis = (
        ((element.scale,), (element.zero_point,), None)
        if isinstance(element, UniformType)
        else (element.scales, element.zero_points, element.axis)
    )
    _check_zero_points(zero_points, zero_point_bounds or element.storage.default_bounds, side)
    return QuantizedOperand(
        tensor=tensor,
        expressed=element.expressed,
        storage_name=_storage_name(element.storage),
        dtype=dtype,
        minimum=element.storage.minimum,
        maximum=element.storage.maximum,
        scales=scales,
        zero_points=zero_points,
        axis=axis,
    )
