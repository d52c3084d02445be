"""TOSA's operators under their own names."""

from __future__ import annotations

import numpy as np
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.errors import PreconditionError, TensorDataError, default_pointer, pointers_for_sides
from requant.mlir import print_type
from requant.operations.multipliers import CHARACTERS_PER_FACTOR
from requant.operators.tosa.rescale_plan import RescalePlan, plan_rescale
from requant_service.http.json_body import MEDIA_TYPE, receive_json
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import BuffersResponse
from requant_service.json_api.schemas.tosa import RescaleReply, RescaleRequest
from requant_service.json_api.tensors import output_pieces, read_elements
from requant_service.operations.types import read_tensor_type, read_type
from requant_service.runtime.runtime import require_ready

router = APIRouter(prefix="/v1/tosa", tags=["tosa"], dependencies=[Depends(no_query)])

_EXAMPLE = {
    "input": {"type": "tensor<2x2xi32>", "values": [1000, -2000, 3000, 70000]},
    "output_type": "i8",
    "multiplier": [1073741824, 1431655765],
    "shift": [38, 39],
    "output_zp": -1,
    "per_channel": True,
}


@router.post(
    "/rescale",
    **json_operation(
        "tosaRescale",
        "tosa.RESCALE with parameters as numbers",
        RescaleRequest,
        RescaleReply,
        example=_EXAMPLE,
    ),
)
async def rescale(request: Request) -> Response:
    """TOSA RESCALE: subtract the zero point, multiply and shift, add the zero point, clamp."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, RescaleRequest, running)

    def decide() -> tuple[RescalePlan, str]:
        input_type = read_tensor_type(call.input.type, settings, "/input/type")
        output_type = read_type(call.output_type, settings.max_type_bytes, "/output_type")
        operands = call.model_dump(exclude={"input", "output_type"})
        with pointers_for_sides(input="/input/type", output="/output_type"):
            plan = plan_rescale(input_type, output_type, **operands)
        return plan, print_type(plan.output_type)

    characters = len(call.input.type) + len(call.output_type) + len(call.multiplier) * CHARACTERS_PER_FACTOR
    plan, output_type = await running.executor.run_text(characters, decide)

    def run() -> Response:
        source = read_elements(call.input, plan.input_type, plan.input_dtype, "input", body, settings)
        target = np.empty(plan.elements, plan.output_dtype)
        with default_pointer("/input", PreconditionError, TensorDataError):
            plan.run(source, target)
        output = output_pieces(plan.output_type, target, in_values=call.input.in_values, text=output_type)
        return BuffersResponse([b'{"output":', *output, b"}"], MEDIA_TYPE)

    return await running.executor.run_array(len(body), run)
