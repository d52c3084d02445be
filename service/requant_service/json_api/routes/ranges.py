"""Scales and zero points from ranges, and the scale and integers of a bias."""

from __future__ import annotations

import numpy as np
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.formats.elements import FLOATS
from requant.mlir.types import TensorType
from requant_service.http.json_body import MEDIA_TYPE, receive_json
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import BuffersResponse, json_response, json_text
from requant_service.json_api.schemas.ranges import BiasReply, BiasRequest, ParametersReply, RangeRequest
from requant_service.json_api.tensors import output_pieces, read_elements
from requant_service.operations.parameters import CHARACTERS_PER_SCALE, finished_parameters
from requant_service.operations.parameters.ranges import DerivedBias, RangeCall, derive_from_ranges, plan_bias
from requant_service.operations.types import read_tensor_type
from requant_service.runtime.runtime import require_ready

router = APIRouter(prefix="/v1/parameters", tags=["params"], dependencies=[Depends(no_query)])

_EXAMPLE = {"minimums": [-1.0], "maximums": [2.0], "storage": "i8", "scheme": "litert"}
_BIAS_EXAMPLE = {
    "input_scale": 0.5,
    "weight_scales": [0.25, 0.125],
    "scheme": "litert",
    "bias": {"type": "tensor<2xf32>", "values": [1.0, -2.5]},
}


@router.post(
    "/range",
    **json_operation("deriveFromRange", "Scale and zero point from a range", RangeRequest, ParametersReply, _EXAMPLE),
)
async def derive_from_range(request: Request) -> Response:
    """Derive scale and zero point from a range, by the rule of a system."""
    running = require_ready(request)
    call, _ = await receive_json(request, RangeRequest, running)

    def work() -> Response:
        given = call.model_fields_set
        asked = RangeCall(
            minimums=np.array(call.minimums),
            maximums=np.array(call.maximums),
            scheme=call.scheme,
            storage=call.storage,
            expressed=call.expressed,
            options=call.options,
            axis=call.axis if "axis" in given else None,
            shape=tuple(call.shape) if "shape" in given else None,
            block_sizes=tuple(call.block_sizes) if "block_sizes" in given else None,
        )
        rule, expressed, found, granularity = derive_from_ranges(asked, running.settings)
        return json_response(ParametersReply(**finished_parameters(rule, expressed, found, granularity)))

    return await running.executor.run_text(len(call.minimums) * CHARACTERS_PER_SCALE, work)


@router.post("/bias", **json_operation("deriveBias", "Scale of a bias", BiasRequest, BiasReply, _BIAS_EXAMPLE))
async def derive_bias(request: Request) -> Response:
    """Derive the scale of a bias from the scales of input and weights, and quantize the bias to int32."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, BiasRequest, running)
    has_bias = "bias" in call.model_fields_set

    def decide() -> DerivedBias:
        tensor = read_tensor_type(call.bias.type, settings, "/bias/type") if has_bias else None
        return plan_bias(call.scheme, call.input_scale, np.array(call.weight_scales), tensor, "/bias/type")

    def work() -> Response:
        reply = {
            "scheme": derived.rule.name,
            "scales": derived.scales.tolist(),
            "zero_points": [0] * derived.scales.size,
            **derived.finished,
        }
        head = json_text(reply)
        if derived.type is None:
            return BuffersResponse([head], MEDIA_TYPE)
        source = TensorType(derived.type.shape, FLOATS["f32"])
        values = read_elements(call.bias, source, np.dtype("<f4"), "bias", body, settings)
        found = derived.quantize(values, "/bias")
        report = {
            "elements": values.size,
            "saturated_low": found.saturated_low,
            "saturated_high": found.saturated_high,
        }
        in_values = call.bias.in_values
        output = output_pieces(derived.type, found.values, in_values=in_values, text=derived.output_type)
        return BuffersResponse(
            [head[:-1] + b',"output":', *output, b',"report":' + json_text(report) + b"}"], MEDIA_TYPE
        )

    derived = await running.executor.run_text(len(call.weight_scales) * CHARACTERS_PER_SCALE, decide)
    return await running.executor.run_array(len(body), work)
