"""MLIR modules: passes that lower quantized operations.

xDSL takes a third of a second to import, so the first module does it, in the thread of modules.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from core.errors import LimitError
from service.json_body import receive_json
from service.lifespan import require_ready
from service.lowering_models import LowerReply, LowerRequest
from service.module_text import read
from service.operation import json_operation
from service.problems import at
from service.query import no_query
from service.replies import json_reply
from service.settings import Settings

router = APIRouter(prefix="/v1", tags=["modules"], dependencies=[Depends(no_query)])

_QUANTIZED = "tensor<2x!quant.uniform<i8:f32, 0.5:3>>"
_EXAMPLE = {
    "module": f"func.func @main(%x: tensor<2xf32>) -> {_QUANTIZED} {{\n"
    f"  %q = quant.qcast %x : tensor<2xf32> to {_QUANTIZED}\n  return %q : {_QUANTIZED}\n}}\n",
    "passes": ["lower-quant-ops", "strip-func-quant-types"],
}


@router.post("/lower", **json_operation("lower", LowerRequest, LowerReply, _EXAMPLE))
async def lower(request: Request) -> Response:
    """Run passes on a module, and print what they made of it."""
    running = require_ready(request)
    call, _ = await receive_json(request, LowerRequest, running)
    return await running.compute.modules(lambda: _lowered(call, running.settings))


def _lowered(call: LowerRequest, settings: Settings) -> Response:
    from core.lowering.passes import apply, parse_pass

    limit = settings.max_passes
    if len(call.passes) > limit:
        detail = f"there are {len(call.passes)} passes; at most {limit} are run"
        raise LimitError(detail, limit=limit, pointer="/passes")
    passes = []
    for index, text in enumerate(call.passes):
        with at(f"/passes/{index}"):
            passes.append(parse_pass(text))
    module = read(call.module, settings, "/module")
    with at("/module"):
        apply(module, passes)
    return json_reply(LowerReply(module=module.write()))
