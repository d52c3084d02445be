"""Multipliers and shifts from real factors, in JSON."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from core.cancellation import checked
from core.errors import at, below
from core.schemes import scheme_named
from core.schemes.multipliers import DerivedMultiplier, derive_from_scales, derive_multiplier
from service.http.json_body import receive_json
from service.http.openapi_operation import json_operation
from service.http.query import no_query
from service.http.responses import json_response
from service.json_api.schemas import multipliers as models
from service.json_api.schemas.multipliers import MultiplierReply, MultiplierRequest
from service.operations.parameters import check_factors
from service.runtime.executor import CHARACTERS_PER_FACTOR
from service.runtime.runtime import require_ready

router = APIRouter(prefix="/v1/parameters", tags=["params"], dependencies=[Depends(no_query)])


_EXAMPLE = {"factors": ["0.0123", "0x1.8p-5"], "scheme": "litert"}


@router.post("/multiplier", **json_operation("deriveMultiplier", MultiplierRequest, MultiplierReply, _EXAMPLE))
async def derive_multipliers(request: Request) -> Response:
    """Derive the integer multiplier and shift for each factor, and the value that they represent."""
    running = require_ready(request)
    call, _ = await receive_json(request, MultiplierRequest, running)
    [(field, given)] = call.given("factors", "scales").items()
    count = len(given)
    check_factors(count, field, running.settings, f"/{field}")
    with at("/scheme"):
        scheme = scheme_named(call.scheme).name

    def derive(index: int) -> DerivedMultiplier:
        if field == "factors":
            return derive_multiplier(given[index], scheme)
        scales = given[index]
        other = scales.weight if "weight" in scales.model_fields_set else None
        return derive_from_scales(scales.input, other, scales.output, scheme)

    def work() -> Response:
        results = []
        for index in checked(range(count), 16):
            with below(f"/{field}/{index}"):
                results.append(models.DerivedMultiplier(**asdict(derive(index))))
        return json_response(MultiplierReply(scheme=scheme, results=results))

    return await running.executor.run_text(count * CHARACTERS_PER_FACTOR, work)
