"""The two kinds of tensor that a conversion connects, checked and taken apart: floats and uniformly quantized numbers.

Two questions are asked here in turn: does the type fit the tensor (TypeFitError), does the profile take it
(UnsupportedError). That it is a type at all was the parser's answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from requant.errors import TypeFitError, UnsupportedError, error_side, excerpt
from requant.formats.elements import FloatElement, IntegerElement, integer_dtype
from requant.mlir.casts import scast_reason
from requant.mlir.fit import fit_fault
from requant.mlir.printer import print_type
from requant.mlir.stablehlo import stablehlo_reason
from requant.mlir.types import (
    AnyType,
    CalibratedType,
    ElementType,
    QuantileType,
    StorageType,
    TensorType,
    Type,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
    UniformType,
)
from requant.mlir.verifier import MAXIMUM_STORAGE_WIDTH
from requant.plan.channels import Channels, channels_of, whole_blocks
from requant.plan.float_arrays import COMPUTE_DTYPES
from requant.profiles import OperationRule
from requant.profiles.rule import TypeRules, ZeroPointRange

_INT32_BOUNDS = (-(1 << 31), (1 << 31) - 1)
_AS_F32 = "x.astype(np.float32)"
_SMALLEST_NORMAL = float(np.finfo(np.float32).smallest_normal)


def _subnormal_scale(tensor: TensorType) -> str | None:
    """Return what XNNPACK has against a type, None where it takes it."""
    element = tensor.element
    scales = element.scales if isinstance(element, UniformQuantizedType) else ()
    with np.errstate(over="ignore"):
        subnormal = next((scale for scale in scales if np.float32(scale) < _SMALLEST_NORMAL), None)
    return None if subnormal is None else f"scale {subnormal!r} is subnormal in f32"


_TYPE_RULES = {
    TypeRules.STABLEHLO: ("StableHLO", stablehlo_reason),
    TypeRules.SIGNLESS: ("MLIR's lowering", scast_reason),
    TypeRules.XNNPACK: ("XNNPACK", _subnormal_scale),
}


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


def bind(type_: Type, shape: tuple[int, ...]) -> TensorType:
    """Return `type_` as a tensor of exactly `shape`: an element type takes it, `?` and `*` are filled in.

    Raise TypeFitError if a dimension or the rank disagrees, or if the type cannot be the type of a tensor.
    """
    if isinstance(type_, TensorType):
        if type_.shape is not None and (
            len(type_.shape) != len(shape)
            or any(declared not in (None, size) for declared, size in zip(type_.shape, shape, strict=True))
        ):
            raise TypeFitError(
                f"the type has shape {_shape_text(type_.shape)}, and the tensor that it is put on {_shape_text(shape)}"
            )
        return replace(type_, shape=shape)
    if isinstance(type_, ElementType):
        return TensorType(shape, type_)
    raise TypeFitError(f"{excerpt(print_type(type_))} is not the type of a tensor")


def float_element(tensor: TensorType, side: str) -> FloatElement:
    """Return the element type of a tensor of floats that conversions take, or raise UnsupportedError."""
    element = tensor.element
    if not isinstance(element, FloatElement) or element.name not in COMPUTE_DTYPES:
        taken = ", ".join(COMPUTE_DTYPES)
        numpy = f"; in numpy {_AS_F32}" if isinstance(element, IntegerElement) else ""
        raise UnsupportedError(
            f"the {side} has elements of {excerpt(print_type(element))}; this operation takes {taken} there{numpy}"
        )
    return element


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOperand:
    """A tensor of stored numbers, perhaps with zero points: one entry for each channel or block.

    `storage` is `i8`, `u4`, `f8E4M3FN`...: what is computed with, however the type spells it. [lowest, highest] is what
    the storage holds, [minimum, maximum] its bounds in the type; for small floats they say nothing. `blocks` is the
    block's size along each dimension.
    """

    tensor: TensorType
    storage: str
    width: int
    dtype: np.dtype[Any]
    lowest: int
    highest: int
    minimum: int
    maximum: int
    zero_points: tuple[int, ...]
    blocks: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(static_shape(self.tensor))

    @property
    def input_bounds(self) -> tuple[int, int] | None:
        """What stored numbers must lie within, where their container holds more than the storage type."""
        if self.is_float:
            return None
        limits = np.iinfo(self.dtype)
        return None if (self.lowest, self.highest) == (limits.min, limits.max) else (self.lowest, self.highest)

    @property
    def is_float(self) -> bool:
        """Whether stored numbers are small floats."""
        return self.storage.startswith("f")

    def check_symmetric(self, side: str, reason: str) -> None:
        """Raise UnsupportedError, giving `reason`, unless every zero point is 0."""
        with error_side(side):
            for channel, zero_point in enumerate(self.zero_points):
                if zero_point:
                    raise UnsupportedError(f"{reason}; channel {channel} of the {side} has zero point {zero_point}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedOperand(StoredOperand):
    """A uniformly quantized tensor. `scales` are f64 as the type keeps them; one entry for each channel or block.

    `quantile` is the table that stored numbers index, where there is one.
    """

    expressed: FloatElement
    scales: tuple[float, ...]
    granularity: str
    axis: int | None
    quantile: QuantileType | None

    @property
    def channels(self) -> Channels:
        return channels_of(static_shape(self.tensor), self.blocks)

    def layout_along(self, axis: int | None = None) -> str:
        """Return the granularity, with blocks that more than one element follows in each index of their axis told
        apart. `axis` is theirs, where it is known; the sizes say it if they are not all 1.
        """
        if self.granularity != "sub_channel":
            return self.granularity
        if axis is None:
            axis = max((axis for axis, block in enumerate(self.blocks) if block > 1), default=len(self.blocks) - 1)
        return "sub_channel_outer" if prod(static_shape(self.tensor)[axis + 1 :]) > 1 else "sub_channel"

    def check_expressed(self, floats: TensorType, supported: tuple[str, ...]) -> None:
        """Raise UnsupportedError unless the tensor of floats on the other side has this type's expressed type.

        `supported`: the expressed types that the profile's rule takes.
        """
        if floats.element != self.expressed:
            expressed, actual = self.expressed.name, excerpt(print_type(floats.element))
            advice = f"make the elements {expressed}"
            if (expressed, actual) == ("f32", "f64"):
                advice += f" (numpy's default is f64: {_AS_F32})"
            if actual in supported:
                advice = f"write {self.storage}:{actual} in the type, or {advice}"
            raise UnsupportedError(
                f"the quantized type expresses {expressed}, and the other side has elements of {actual}; {advice}"
            )

    def check_same_expressed(self, other: QuantizedOperand) -> None:
        """Raise UnsupportedError unless both types have the same expressed type."""
        if other.expressed != self.expressed:
            raise UnsupportedError(
                f"the input's type expresses {self.expressed.name}, and the output's {other.expressed.name}; they must "
                "be the same"
            )


def integer_operand(tensor: TensorType, side: str, zero_point: int = 0) -> StoredOperand:
    """Take a tensor of plain integers apart: signed ones up to 64 bits, unsigned ones up to 32.

    Raise TypeFitError if it has no static shape, UnsupportedError if its elements are no such integers.
    """
    element = tensor.element
    shape = static_shape(tensor)
    if not isinstance(element, IntegerElement) or not 1 <= element.width <= (64 if element.signed else 32):
        raise UnsupportedError(
            f"the {side} has elements of {excerpt(print_type(element))}; this operation takes i1 to i64 and ui1 to "
            "ui32 there"
        )
    lowest, highest = element.minimum, element.maximum
    return StoredOperand(
        tensor=tensor,
        storage=f"{'i' if element.signed else 'u'}{element.width}",
        width=element.width,
        dtype=element.dtype,
        lowest=lowest,
        highest=highest,
        minimum=lowest,
        maximum=highest,
        zero_points=(zero_point,),
        blocks=whole_blocks(shape),
    )


def storage_name(storage: StorageType) -> str:
    """Return what stored numbers are, however the type spells it: `i8`, `u4`, `f8E4M3FN`."""
    if isinstance(storage.element, IntegerElement):
        return f"{'i' if storage.signed else 'u'}{storage.width}"
    return storage.element.name if isinstance(storage.element, FloatElement) else "quantile"


def element_name(element: ElementType) -> str:
    """Return what elements are, without parameters: `i4`, `f8E4M3FN`, `quantile`, `bf16`."""
    if isinstance(element, UniformQuantizedType):
        return storage_name(element.storage)
    return print_type(element)


def kept_dtype(element: ElementType, side: str) -> np.dtype[Any]:
    """Return the dtype in which elements of a type are kept, whatever is done with them: of a quantized one its
    storage. Raise UnsupportedError for a type without tensors.
    """
    storage = element.storage if isinstance(element, UniformQuantizedType | AnyType) else None
    stored = element if storage is None else storage.element
    if isinstance(stored, QuantileType):
        return integer_dtype(stored.storage.width, signed=_signed_codes(stored, side))
    if isinstance(stored, IntegerElement) and stored.width <= 64:
        return integer_dtype(stored.width, signed=stored.signed if storage is None else storage.signed)
    if isinstance(stored, FloatElement) and stored.dtype is not None:
        return stored.dtype
    raise UnsupportedError(f"there are no tensors of {excerpt(print_type(element))}")


def _zero_points(zero_points: tuple[int, ...], storage: StorageType, rule: OperationRule, side: str) -> tuple[int, ...]:
    """Return the zero points that the rule computes with."""
    lowest, highest = storage.default_bounds
    if rule.zero_points is ZeroPointRange.TRUNCATED:
        return tuple((zero_point - lowest) % (1 << storage.width) + lowest for zero_point in zero_points)
    if rule.zero_points is ZeroPointRange.INT32:
        lowest, highest = _INT32_BOUNDS
    for channel, zero_point in enumerate(zero_points):
        if not lowest <= zero_point <= highest:
            place = f"channel {channel} of " if len(zero_points) > 1 else ""
            raise UnsupportedError(
                f"zero point {zero_point} of {place}the {side} is outside of the profile's {lowest} to {highest}"
            )
    return zero_points


def _signed_codes(quantile: QuantileType, side: str) -> bool:
    """Return whether codes are stored as signed integers of the storage's width: where there are negative ones.

    Raise UnsupportedError if they do not fit; MLIR does not compare the two.
    """
    lowest, highest = quantile.bounds
    width, signed = quantile.storage.width, lowest < 0
    if not -(1 << width >> 1) <= lowest or highest >> (width - signed):
        raise UnsupportedError(f"the {side} has codes {lowest} to {highest}, which {width} bits do not hold")
    return signed


_GRANULARITIES = {UniformType: "per_tensor", UniformPerAxisType: "per_axis", UniformSubChannelType: "sub_channel"}


def _check_taken(what: str, actual: str, supported: tuple[str, ...], side: str, profile: str) -> None:
    if actual not in supported:
        listed = ", ".join(supported) if len(supported) < 32 else "i1 to i32 and u1 to u32"
        raise UnsupportedError(f"the {side} has {actual} {what}; profile {profile} takes {listed} here")


def _blocks(element: UniformQuantizedType, shape: tuple[int, ...]) -> tuple[int, ...]:
    match element:
        case UniformType():
            sizes: dict[int, int] = {}
        case UniformPerAxisType(axis=along):
            sizes = {along: 1}
        case UniformSubChannelType(blocks=blocks):
            sizes = dict(blocks)
    return tuple(sizes.get(axis, max(dimension, 1)) for axis, dimension in enumerate(shape))


def check_type_rules(tensor: TensorType, side: str, rule: OperationRule) -> None:
    """Raise UnsupportedError if the rule's own system refuses the type."""
    if rule.type_rules is None:
        return
    system, reason_of = _TYPE_RULES[rule.type_rules]
    if (reason := reason_of(tensor)) is not None:
        raise UnsupportedError(f"{system} does not take the {side}: {reason}")


def _example_type(element: ElementType) -> str:
    """Return a quantized type, of the same storage where the element type is one of integers that are stored."""
    storage = "i8"
    if isinstance(element, IntegerElement) and element.width <= MAXIMUM_STORAGE_WIDTH:
        storage = f"{'i' if element.signed else 'u'}{element.width}"
    return f"!quant.uniform<{storage}:f32, 0.5:3>"


def quantized_operand(tensor: TensorType, side: str, rule: OperationRule, profile: str) -> QuantizedOperand:
    """Check a tensor type for a rule of a profile and take it apart. `side` is "input" or "output".

    Raise TypeFitError if the parameters do not fit the shape, UnsupportedError if it is not a uniform type, if the rule
    does not list its storage, expressed type or granularity, if a zero point is out of range or small floats have one,
    or if the profile's own system refuses it.
    """
    element = tensor.element
    if isinstance(element, AnyType | CalibratedType):
        raise UnsupportedError(
            f"the {side} has elements of {excerpt(print_type(element))}, which leaves the scales open; take the type "
            "that requant.parameters or /v1/parameters/tensor finds for the data"
        )
    if not isinstance(element, UniformQuantizedType):
        raise UnsupportedError(
            f"the {side} has elements of {excerpt(print_type(element))}; this operation takes a quantized type there, "
            f"such as {_example_type(element)}"
        )
    storage = element.storage
    name = storage_name(storage)
    if (fault := fit_fault(tensor, short_blocks=rule.short_blocks)) is not None:
        raise TypeFitError(f"the {side} does not fit: {fault}")
    check_type_rules(tensor, side, rule)
    _check_taken("storage", name, rule.storages, side, profile)
    _check_taken("as its expressed type", element.expressed.name, rule.expressed, side, profile)
    _check_taken("parameters", _GRANULARITIES[type(element)], rule.granularities, side, profile)
    is_float = isinstance(storage.element, FloatElement)
    quantile = storage.element if isinstance(storage.element, QuantileType) else None
    lowest, highest = storage.default_bounds
    signed = storage.signed if quantile is None else _signed_codes(quantile, side)
    if is_float and (storage.minimum, storage.maximum) != (lowest, highest):
        raise UnsupportedError(f"the {side} narrows the bounds of {name}; conversions to small floats have no bounds")
    shape = static_shape(tensor)
    operand = QuantizedOperand(
        tensor=tensor,
        expressed=element.expressed,
        storage=name,
        width=storage.width,
        dtype=np.dtype("|u1") if is_float else integer_dtype(storage.width, signed=signed),
        lowest=lowest,
        highest=highest,
        minimum=storage.minimum,
        maximum=storage.maximum,
        scales=element.scales,
        zero_points=_zero_points(element.zero_points, storage, rule, side),
        granularity=_GRANULARITIES[type(element)],
        blocks=_blocks(element, shape),
        axis=element.axis if isinstance(element, UniformPerAxisType) else None,
        quantile=quantile,
    )
    if is_float:
        operand.check_symmetric(side, f"{name} storage has no zero point")
    return operand
