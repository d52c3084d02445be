"""Parameters of the arithmetic: multipliers and shifts from real factors."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from core.errors import LimitError
from core.parameters.multipliers import derive_multiplier
from core.parameters.schemes import scheme_named
from service.compute import CHARACTERS_PER_FACTOR
from service.json_body import receive_json
from service.lifespan import require_ready
from service.operation import json_operation
from service.problems import at
from service.query import no_query
from service.replies import json_reply
from service.schemas import DerivedMultiplier, MultiplierReply, MultiplierRequest

router = APIRouter(prefix="/v1/parameters", tags=["params"], dependencies=[Depends(no_query)])


_EXAMPLE = {"factors": ["0.0123", "0x1.8p-5"], "scheme": "litert"}


@router.post("/multiplier", **json_operation("deriveMultiplier", MultiplierRequest, MultiplierReply, _EXAMPLE))
async def derive_multipliers(request: Request) -> Response:
    """Derive the integer multiplier and shift for each factor, with the value that they stand for."""
    running = require_ready(request)
    call, _ = await receive_json(request, MultiplierRequest, running)
    limit = running.settings.max_factors
    if len(call.factors) > limit:
        detail = f"there are {len(call.factors)} factors; at most {limit} are taken at once"
        raise LimitError(detail, limit=limit, pointer="/factors")
    with at("/scheme"):
        scheme = scheme_named(call.scheme).name

    def work() -> Response:
        results = []
        for index, factor in enumerate(call.factors):
            with at(f"/factors/{index}"):
                results.append(DerivedMultiplier(**asdict(derive_multiplier(factor, scheme))))
        return json_reply(MultiplierReply(scheme=scheme, results=results))

    return await running.compute.texts(len(call.factors) * CHARACTERS_PER_FACTOR, work)
