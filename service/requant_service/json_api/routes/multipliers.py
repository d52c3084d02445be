"""Multipliers and shifts from real factors, in JSON."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant_service.http.json_body import receive_json
from requant_service.http.json_document import JsonDocument
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import json_response
from requant_service.json_api.schemas import multipliers as models
from requant_service.json_api.schemas.multipliers import MultiplierReply, MultiplierRequest, ScaleTriple
from requant_service.operations.parameters.multipliers import (
    Scales,
    derivation_characters,
    derive_from_each_scales,
    derive_from_factors,
    scheme_for,
)
from requant_service.runtime.runtime import require_ready

router = APIRouter(prefix="/v1/parameters", tags=["params"], dependencies=[Depends(no_query)])


_EXAMPLE = {"factors": [0.0123, "0x1.8p-5"], "scheme": "litert"}


@router.post(
    "/multiplier",
    **json_operation(
        "deriveMultiplier", "Multiplier and shift from a factor", MultiplierRequest, MultiplierReply, _EXAMPLE
    ),
)
async def derive_multipliers(request: Request) -> Response:
    """Derive the integer multiplier and shift for each factor, and the value that they represent."""
    running = require_ready(request)
    call, body = await receive_json(request, MultiplierRequest, running)
    [(field, given)] = call.given("factors", "scales").items()
    scheme = scheme_for(call.scheme, len(given), field, running.settings)

    def work() -> Response:
        if field == "factors":
            texts = [body.number_text(factor, f"factors/{index}") for index, factor in enumerate(call.factors)]
            found = derive_from_factors(texts, scheme)
        else:
            scales = [_texts(each, body, f"scales/{index}") for index, each in enumerate(call.scales)]
            found = derive_from_each_scales(scales, scheme)
        results = [models.DerivedMultiplier(**asdict(each)) for each in found]
        return json_response(MultiplierReply(scheme=scheme, results=results))

    return await running.executor.run_text(derivation_characters(len(given)), work)


def _texts(scales: ScaleTriple, body: JsonDocument, field: str) -> Scales:
    def text(name: str) -> str:
        return body.number_text(getattr(scales, name), f"{field}/{name}")

    return text("input"), text("weight") if "weight" in scales.model_fields_set else None, text("output")
