"""The type language for its own sake: is this a type, and what does it say."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from service.http.json_body import receive_json
from service.http.openapi_operation import json_operation
from service.http.query import no_query
from service.http.responses import json_reply
from service.json_api.type_description import ParsedType, ParseTypeRequest, describe
from service.operations.types import read_type
from service.runtime.runtime import runtime

router = APIRouter(prefix="/v1/types", tags=["types"], dependencies=[Depends(no_query)])


_EXAMPLE = {"text": "tensor<2x3x!quant.uniform<i8:f32:1, {0.5:3, 0.25, 0.125}>>"}


@router.post("/parse", **json_operation("parseType", ParseTypeRequest, ParsedType, _EXAMPLE))
async def parse_type(request: Request) -> Response:
    """Parse an MLIR type. A text that is none is answered with where it stops being one."""
    running = runtime(request)
    call, _ = await receive_json(request, ParseTypeRequest, running)

    def work() -> Response:
        return json_reply(describe(read_type(call.text, running.settings.max_type_bytes, "/text")))

    return await running.compute.texts(len(call.text), work)
