"""A type as one flat object: what `/v1/types/parse` answers, made for clients whose language has no unions.

Scalars that a kind does not have are absent, lists that it does not have are empty. Real numbers are decimal texts that
read back to the same binary64, because JSON cannot promise that in every language; scales and zero points come as bit
patterns besides.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import Any, get_origin

from pydantic import Field

from core.formats.elements import FloatElement, IndexElement, IntegerElement, Signedness
from core.mlir import print_type
from core.mlir.casts import dcast_reason, qcast_reason, scast_reason
from core.mlir.printer import print_tensor, print_tuple
from core.mlir.stablehlo import stablehlo_reason
from core.mlir.types import (
    AnyType,
    CalibratedType,
    ElementType,
    QuantileType,
    StorageType,
    TensorType,
    TupleType,
    Type,
    UniformPerAxisType,
    UniformSubChannelType,
    UniformType,
)
from service.http.models import Int32, Int64, ReplyModel, RequestModel


class ParseTypeRequest(RequestModel):
    """A text that should be a type."""

    text: str = Field(description="MLIR text.", examples=["tensor<2x3x!quant.uniform<i8:f32:1, {0.5:3, 0.25, 0.125}>>"])


class TypeKind(StrEnum):
    """The kinds of types."""

    INTEGER = "integer"
    FLOAT = "float"
    INDEX = "index"
    TENSOR = "tensor"
    TUPLE = "tuple"
    ANY = "any"
    UNIFORM = "uniform"
    UNIFORM_PER_AXIS = "uniform_per_axis"
    UNIFORM_SUB_CHANNEL = "uniform_sub_channel"
    CALIBRATED = "calibrated"
    QUANTILE = "quantile"


class TypeCheckName(StrEnum):
    """The questions that can be asked of a type: is it MLIR, and who takes it."""

    MLIR = "mlir"
    QCAST = "qcast"
    DCAST = "dcast"
    SCAST = "scast"
    STABLEHLO = "stablehlo"


class TypeCheck(ReplyModel):
    """One question and its answer."""

    name: TypeCheckName
    passes: bool
    reason: str = Field(default="", description="Why not. Only where it does not pass.")


class ParsedType(ReplyModel):
    """A parsed type. Of a tensor, the fields after `encoding` describe its element type."""

    canonical: str = Field(description="The type as MLIR prints it.")
    kind: TypeKind
    ranked: bool = Field(default=False, description="Whether a tensor has a known rank. Only in tensors.")
    shape: list[Int64] = Field(
        description="Dimensions of a tensor; -1 is dynamic. Readers that keep numbers as binary64 round those beyond "
        "2^53; canonical is exact for every reader."
    )
    encoding: str = Field(default="", description="The encoding attribute of a tensor.")
    element: str = Field(default="", description="The element type of a tensor, in canonical text.")
    element_kind: TypeKind = Field(default=TypeKind.INDEX, description="The kind of a tensor's element type.")
    bits: Int32 = Field(default=0, description="Bits of one number, or of one stored number.")
    signed: bool = Field(default=False, description="Whether numbers, or stored numbers, can be negative.")
    storage: str = Field(default="", description="What is stored, as it was spelled: i8, u8, si8, ui8, ...")
    storage_min: Int64 = Field(default=0, description="Lower storage bound.")
    storage_max: Int64 = Field(default=0, description="Upper storage bound.")
    expressed: str = Field(default="", description="The float type that stored numbers stand for.")
    axis: Int32 = Field(default=0, description="The quantized axis of uniform_per_axis.")
    block_axes: list[Int32] = Field(description="The axes that uniform_sub_channel cuts into blocks.")
    block_sizes: list[Int64] = Field(description="The block size of each of block_axes.")
    scale_shape: list[Int64] = Field(description="The shape of the scales of uniform_sub_channel.")
    scales: list[str] = Field(description="One scale, or one per channel or block.")
    scale_bits: list[str] = Field(description="The scales as binary64 bit patterns, 0x and 16 digits.")
    zero_points: list[Int64] = Field(
        description="One zero point for each scale. Readers that keep numbers as binary64 round those beyond 2^53; "
        "zero_point_bits is exact for every reader."
    )
    zero_point_bits: list[str] = Field(
        description="The zero points as 64-bit two's complement patterns, 0x and 16 digits."
    )
    range_min: str = Field(default="", description="Lower end of a calibrated range.")
    range_max: str = Field(default="", description="Upper end of a calibrated range.")
    value: str = Field(default="", description="The type of a quantile's table entries.")
    table: list[str] = Field(description="The table of a quantile.")
    members: list[str] = Field(description="The member types of a tuple, in canonical text.")
    checks: list[TypeCheck] = Field(
        description="Whether the type is MLIR (a text that is not is answered with 422), whether quant.qcast, "
        "quant.dcast and quant.scast take it, and whether StableHLO does.",
    )


def describe(parsed: Type) -> ParsedType:
    """Return the flat description of a type. Each part of it is printed once: texts may be long."""
    if isinstance(parsed, TensorType):
        fields = _tensor(parsed)
    elif isinstance(parsed, TupleType):
        members = [print_type(member) for member in parsed.members]
        fields = {"canonical": print_tuple(members), "kind": TypeKind.TUPLE, "members": members}
    else:
        kind, described = _element(parsed)
        fields = {"canonical": print_type(parsed), "kind": kind, **described}
    return ParsedType(**{**{name: [] for name in _LISTS}, **fields, "checks": _checks(parsed)})


# The lists that a description always has, empty where its kind has none.
_LISTS = [
    name for name, field in ParsedType.model_fields.items() if get_origin(field.annotation) is list and name != "checks"
]


def _checks(parsed: Type) -> list[TypeCheck]:
    reasons = {
        TypeCheckName.MLIR: None,
        TypeCheckName.QCAST: qcast_reason(parsed),
        TypeCheckName.DCAST: dcast_reason(parsed),
        TypeCheckName.SCAST: scast_reason(parsed),
        TypeCheckName.STABLEHLO: stablehlo_reason(parsed),
    }
    return [
        TypeCheck(name=name, passes=True) if reason is None else TypeCheck(name=name, passes=False, reason=reason)
        for name, reason in reasons.items()
    ]


def _tensor(tensor: TensorType) -> dict[str, Any]:
    kind, described = _element(tensor.element)
    element = print_type(tensor.element)
    fields: dict[str, Any] = {
        "canonical": print_tensor(tensor, element),
        "kind": TypeKind.TENSOR,
        "ranked": tensor.shape is not None,
        "shape": [-1 if dimension is None else dimension for dimension in tensor.shape or ()],
        "element": element,
        "element_kind": kind,
        **described,
    }
    if tensor.encoding is not None:
        fields["encoding"] = tensor.encoding
    return fields


def _element(element: ElementType) -> tuple[TypeKind, dict[str, Any]]:
    """Return the kind of an element type and its fields."""
    match element:
        case IntegerElement():
            return TypeKind.INTEGER, {"bits": element.width, "signed": element.signed}
        case FloatElement():
            return TypeKind.FLOAT, {"bits": element.width, "signed": True}
        case IndexElement():
            return TypeKind.INDEX, {}
        case AnyType():
            expressed = {} if element.expressed is None else {"expressed": element.expressed.name}
            return TypeKind.ANY, {**_storage(element.storage), **expressed}
        case UniformType():
            return TypeKind.UNIFORM, {
                **_uniform(element),
                **_parameters((element.scale,), (element.zero_point,)),
            }
        case UniformPerAxisType():
            return TypeKind.UNIFORM_PER_AXIS, {
                **_uniform(element),
                **_parameters(element.scales, element.zero_points),
                "axis": element.axis,
            }
        case UniformSubChannelType():
            return TypeKind.UNIFORM_SUB_CHANNEL, {
                **_uniform(element),
                **_parameters(element.scales, element.zero_points),
                "block_axes": [axis for axis, _ in element.blocks],
                "block_sizes": [size for _, size in element.blocks],
                "scale_shape": list(element.scale_shape),
            }
        case CalibratedType():
            return TypeKind.CALIBRATED, {
                "expressed": element.expressed.name,
                "range_min": repr(element.minimum),
                "range_max": repr(element.maximum),
            }
        case QuantileType():
            return TypeKind.QUANTILE, _quantile(element)


def _uniform(element: UniformType | UniformPerAxisType | UniformSubChannelType) -> dict[str, Any]:
    return {**_storage(element.storage), "expressed": element.expressed.name}


def _parameters(scales: tuple[float, ...], zero_points: tuple[int, ...]) -> dict[str, Any]:
    return {
        "scales": [repr(scale) for scale in scales],
        "scale_bits": [f"0x{struct.pack('>d', scale).hex().upper()}" for scale in scales],
        "zero_points": list(zero_points),
        "zero_point_bits": [f"0x{zero_point & (1 << 64) - 1:016X}" for zero_point in zero_points],
    }


def _storage(storage: StorageType) -> dict[str, Any]:
    element = storage.element
    if isinstance(element, QuantileType):
        name = print_type(element)
    elif isinstance(element, IntegerElement) and element.signedness is Signedness.SIGNLESS and not storage.signed:
        name = f"u{element.width}"
    else:
        name = element.name
    return {
        "storage": name,
        "bits": storage.width,
        "signed": storage.signed,
        "storage_min": storage.minimum,
        "storage_max": storage.maximum,
    }


def _quantile(element: QuantileType) -> dict[str, Any]:
    low, high = element.bounds
    return {
        "storage": print_type(element.storage),
        "bits": element.storage.width,
        "storage_min": low,
        "storage_max": high,
        "value": print_type(element.value),
        "table": [repr(entry) for entry in element.table],
    }
