"""Types as other systems hold them, and back, in JSON."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant_service.http.json_body import receive_json
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import json_response
from requant_service.operations.mlir.translation import translate_type as translated
from requant_service.operations.mlir.translation import translation_characters
from requant_service.operations.mlir.translation_call import TranslateReply, TranslateRequest
from requant_service.runtime.runtime import runtime

router = APIRouter(prefix="/v1/types", tags=["types"], dependencies=[Depends(no_query)])

_EXAMPLE = {"type": "tensor<4x64x!quant.uniform<i8:f32:0, {0.5:3, 0.25, 0.125, 1.0}>>"}


@router.post(
    "/translate", **json_operation("translateType", "Translate a type", TranslateRequest, TranslateReply, _EXAMPLE)
)
async def translate_type(request: Request) -> Response:
    """Translate a quantized type to the operands of other systems, or a system's operands to a type."""
    running = runtime(request)
    call, body = await receive_json(request, TranslateRequest, running)

    def work() -> Response:
        return json_response(translated(call, running.settings))

    return await running.executor.run_text(translation_characters(len(body)), work)
