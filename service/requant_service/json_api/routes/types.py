"""The type language over HTTP: whether a text is a type, what it says, and which operations take it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, get_origin

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.mlir.types import Type
from requant_service.http.json_body import receive_json
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import json_response
from requant_service.json_api.schemas.types import ParsedType, ParseTypeRequest, TypeCheck
from requant_service.operations.mlir.type_description import check_type, describe_type
from requant_service.operations.types import read_type
from requant_service.runtime.runtime import runtime

router = APIRouter(prefix="/v1/types", tags=["types"], dependencies=[Depends(no_query)])


_EXAMPLE = {"text": "tensor<2x3x!quant.uniform<i8:f32:1, {0.5:3, 0.25, 0.125}>>"}


@router.post("/parse", **json_operation("parseType", "Parse a type", ParseTypeRequest, ParsedType, _EXAMPLE))
async def parse_type(request: Request) -> Response:
    """Parse an MLIR type. For an invalid type the error has the offset of the first invalid character."""
    running = runtime(request)
    call, _ = await receive_json(request, ParseTypeRequest, running)

    def work() -> Response:
        return json_response(_described(read_type(call.text, running.settings.max_type_bytes, "/text")))

    return await running.executor.run_text(len(call.text), work)


# The lists that a description always has, empty where its kind has none.
_LISTS = [
    name for name, field in ParsedType.model_fields.items() if get_origin(field.annotation) is list and name != "checks"
]


def _reals(numbers: list[float]) -> list[str]:
    return [repr(number) for number in numbers]


# What has another form in JSON, whose numbers not every reader keeps.
_TEXTS: dict[str, Callable[[Any], Any]] = {"scales": _reals, "table": _reals, "range_min": repr, "range_max": repr}


def _described(parsed: Type) -> ParsedType:
    fields = describe_type(parsed)
    written = {name: _TEXTS[name](value) if name in _TEXTS else value for name, value in fields.items()}
    if "scales" in fields:
        written["scale_bits"] = [f"0x{struct.pack('>d', scale).hex().upper()}" for scale in fields["scales"]]
        written["zero_point_bits"] = [f"0x{each & (1 << 64) - 1:016X}" for each in fields["zero_points"]]
    checks = [
        TypeCheck(name=name, passes=True) if reason is None else TypeCheck(name=name, passes=False, reason=reason)
        for name, reason in check_type(parsed).items()
    ]
    return ParsedType(**{**{name: [] for name in _LISTS}, **written, "checks": checks})
