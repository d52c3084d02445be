"""Parameters of the arithmetic: multipliers and shifts from real factors."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from core.errors import LimitError
from core.parameters.multipliers import derive_multiplier, scheme_named
from service.compute import BYTES_PER_FACTOR
from service.json_body import read_json, receive_json
from service.lifespan import require_ready
from service.operation import json_operation
from service.problems import at
from service.replies import json_reply
from service.schemas import DerivedMultiplier, MultiplierReply, MultiplierRequest

router = APIRouter(prefix="/v1/parameters", tags=["params"])


_EXAMPLE = {"factors": ["0.0123", "0x1.8p-5"], "scheme": "litert"}


@router.post("/multiplier", **json_operation("deriveMultiplier", MultiplierRequest, MultiplierReply, _EXAMPLE))
async def derive_multipliers(request: Request) -> Response:
    """Derive the integer multiplier and shift for each factor, with the value that they stand for."""
    running = require_ready(request)
    call = read_json(await receive_json(request, running.settings), MultiplierRequest, running.settings)
    limit = running.settings.max_factors
    if len(call.factors) > limit:
        detail = f"there are {len(call.factors)} factors; at most {limit} are taken at once"
        raise LimitError(detail, limit=limit, pointer="/factors")
    with at("/scheme"):
        scheme = scheme_named(call.scheme).name

    def work() -> MultiplierReply:
        results = []
        for index, factor in enumerate(call.factors):
            with at(f"/factors/{index}"):
                results.append(DerivedMultiplier(**asdict(derive_multiplier(factor, scheme))))
        return MultiplierReply(scheme=scheme, results=results)

    return json_reply(await running.compute.run(len(call.factors) * BYTES_PER_FACTOR, work))
