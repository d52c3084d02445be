"""Fake quantization by range: f32 to the nearest step of a range, and back, in one call."""

from __future__ import annotations

import numpy as np
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.calibration.fake_quantize import FakeQuantizePlan
from requant_service.http.json_body import MEDIA_TYPE, receive_json
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import BuffersResponse, json_text
from requant_service.json_api.schemas.ranges import FakeQuantizeReply, FakeQuantizeRequest
from requant_service.json_api.tensors import output_pieces, read_elements
from requant_service.operations.parameters import CHARACTERS_PER_SCALE
from requant_service.operations.parameters.ranges import BYTES_PER_RANGE, plan_fake_quantization
from requant_service.operations.types import read_tensor_type
from requant_service.runtime.runtime import require_ready

router = APIRouter(tags=["ops"], dependencies=[Depends(no_query)])

_EXAMPLE = {
    "input": {"type": "tensor<4xf32>", "values": [-0.5, 0.1, 0.2, 3.0]},
    "minimums": [-1.0],
    "maximums": [1.0],
}


@router.post(
    "/v1/fake_quantize",
    **json_operation("fakeQuantize", "Fake-quantize", FakeQuantizeRequest, FakeQuantizeReply, example=_EXAMPLE),
)
async def fake_quantize(request: Request) -> Response:
    """Fake-quantize a tensor: round each element to the nearest step of a nudged range."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, FakeQuantizeRequest, running)

    def decide() -> FakeQuantizePlan:
        tensor = read_tensor_type(call.input.type, settings, "/input/type")
        return plan_fake_quantization(
            tensor,
            np.array(call.minimums),
            np.array(call.maximums),
            num_bits=call.num_bits,
            narrow_range=call.narrow_range,
            scheme=call.scheme,
            axis=call.axis if "axis" in call.model_fields_set else None,
            pointer="/input/type",
        )

    def work() -> Response:
        source = read_elements(call.input, plan.type, np.dtype("<f4"), "input", body, settings)
        target = np.empty(plan.elements, np.float32)
        plan.run(source, target)
        in_values = call.input.in_values
        output = output_pieces(plan.type, target, in_values=in_values)
        ranges = plan.ranges
        assert ranges.nudged_minimums is not None
        assert ranges.nudged_maximums is not None
        tail = {
            "scales": ranges.scales.tolist(),
            "nudged_minimums": ranges.nudged_minimums.tolist(),
            "nudged_maximums": ranges.nudged_maximums.tolist(),
        }
        return BuffersResponse([b'{"output":', *output, b"," + json_text(tail)[1:]], MEDIA_TYPE)

    count = len(call.minimums)
    plan = await running.executor.run_text(len(call.input.type) + count * CHARACTERS_PER_SCALE, decide)
    return await running.executor.run_array(max(len(body), count * BYTES_PER_RANGE), work)
