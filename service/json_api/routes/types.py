"""The type language over HTTP: whether a text is a type, what it says, and which operations take it."""

from __future__ import annotations

import struct
from typing import Any, get_origin

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

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
from service.http.json_body import receive_json
from service.http.openapi_operation import json_operation
from service.http.query import no_query
from service.http.responses import json_response
from service.json_api.schemas.types import ParsedType, ParseTypeRequest, TypeCheck, TypeCheckName, TypeKind
from service.operations.types import read_type
from service.runtime.runtime import runtime

router = APIRouter(prefix="/v1/types", tags=["types"], dependencies=[Depends(no_query)])


_EXAMPLE = {"text": "tensor<2x3x!quant.uniform<i8:f32:1, {0.5:3, 0.25, 0.125}>>"}


@router.post("/parse", **json_operation("parseType", ParseTypeRequest, ParsedType, _EXAMPLE))
async def parse_type(request: Request) -> Response:
    """Parse an MLIR type. An invalid text gets the offset of the first error."""
    running = runtime(request)
    call, _ = await receive_json(request, ParseTypeRequest, running)

    def work() -> Response:
        return json_response(describe(read_type(call.text, running.settings.max_type_bytes, "/text")))

    return await running.executor.run_text(len(call.text), work)


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
