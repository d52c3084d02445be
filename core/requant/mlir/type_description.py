"""What a type says, in parts: its kind, and the members that a type of that kind has."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from requant.formats.elements import FloatElement, IndexElement, IntegerElement, Signedness
from requant.mlir import print_type
from requant.mlir.casts import dcast_reason, qcast_reason, scast_reason
from requant.mlir.printer import print_tensor, print_tuple
from requant.mlir.stablehlo import stablehlo_reason
from requant.mlir.types import (
    BLOCK_SIZE,
    AnyType,
    BlockScaledType,
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
    BLOCK_SCALED = "block_scaled"


class TypeCheckName(StrEnum):
    """The checks on a type: whether it is valid MLIR, and which dialects accept it."""

    MLIR = "mlir"
    QCAST = "qcast"
    DCAST = "dcast"
    SCAST = "scast"
    STABLEHLO = "stablehlo"


def describe_type(parsed: Type) -> dict[str, Any]:
    """Return what a type says, by name: only what its kind has, real numbers as floats, lists as lists.

    Each part is printed once: texts may be long.
    """
    if isinstance(parsed, TensorType):
        return _tensor(parsed)
    if isinstance(parsed, TupleType):
        members = [print_type(member) for member in parsed.members]
        return {"canonical": print_tuple(members), "kind": TypeKind.TUPLE, "members": members}
    kind, described = _element(parsed)
    return {"canonical": print_type(parsed), "kind": kind, **described}


def check_type(parsed: Type) -> dict[TypeCheckName, str | None]:
    """Return the answer to each question: the reason why not, or None where it passes."""
    return {
        TypeCheckName.MLIR: None,
        TypeCheckName.QCAST: qcast_reason(parsed),
        TypeCheckName.DCAST: dcast_reason(parsed),
        TypeCheckName.SCAST: scast_reason(parsed),
        TypeCheckName.STABLEHLO: stablehlo_reason(parsed),
    }


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
                "range_min": element.minimum,
                "range_max": element.maximum,
            }
        case QuantileType():
            return TypeKind.QUANTILE, _quantile(element)
        case BlockScaledType():
            return TypeKind.BLOCK_SCALED, {
                "bits": element.width,
                "signed": True,
                "storage": element.value,
                "block_sizes": [BLOCK_SIZE],
                "block_format": element.block_format,
                **({"scales": list(element.scales), "scale_shape": [len(element.scales)]} if element.scales else {}),
            }


def _uniform(element: UniformType | UniformPerAxisType | UniformSubChannelType) -> dict[str, Any]:
    return {**_storage(element.storage), "expressed": element.expressed.name}


def _parameters(scales: Sequence[float], zero_points: Sequence[int]) -> dict[str, Any]:
    return {"scales": list(scales), "zero_points": list(zero_points)}


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
        "table": list(element.table),
    }
