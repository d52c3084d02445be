"""Vectors for tests of hardware and compilers, in JSON or as a file."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.operations.vectors import (
    BYTES_PER_VECTOR,
    CHARACTERS_PER_VECTOR,
    VECTORS,
    Format,
    make_vectors,
    vectors_file,
    vectors_members,
)
from requant_service.http.json_body import MEDIA_TYPE, receive_json
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import BuffersResponse, json_text
from requant_service.json_api.schemas.vectors import VectorsReply, VectorsRequest, vectors_call
from requant_service.operations.types import read_type
from requant_service.runtime.request_context import reserve_memory
from requant_service.runtime.runtime import require_ready

router = APIRouter(tags=["explain"], dependencies=[Depends(no_query)])


@router.post(
    "/v1/vectors",
    **json_operation(
        VECTORS.name,
        VECTORS.title,
        VectorsRequest,
        VectorsReply,
        example=VECTORS.example,
        files=VECTORS.files.values(),
        excerpt="vectors",
    ),
)
async def vectors(request: Request) -> Response:
    """Inputs worth testing, each with the expected bits, the intermediate steps and the reasons for its selection.

    Ties and their neighbors, both sides of each step and of saturation, bounds, NaN, infinities, zeros, subnormals;
    multipliers, shifts and scales at their extremes, if none are given. The same request always gets the same response.
    """
    running = require_ready(request)
    limit = running.settings.max_type_bytes
    asked, _ = await receive_json(request, VectorsRequest, running)
    await reserve_memory(request.scope, BYTES_PER_VECTOR * asked.count)

    def work() -> Response:
        made = make_vectors(vectors_call(asked), lambda text, place: read_type(text, limit, place))
        if asked.format is Format.JSON:
            return BuffersResponse([json_text(vectors_members(made))], MEDIA_TYPE)
        return BuffersResponse([vectors_file(made, asked.format)], VECTORS.files[asked.format])

    return await running.executor.run_text(CHARACTERS_PER_VECTOR * asked.count, work)
