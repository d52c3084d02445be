"""Scales and zero points from ranges, and the scale and integers of a bias."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from core.errors import InvalidRequestError, TypeFitError, UnsupportedError, at
from core.formats.elements import FLOATS, IntegerElement
from core.mlir.printer import print_tensor, print_type
from core.mlir.types import TensorType
from core.parameters.bias import BIAS_STORAGE, BiasRule, bias_rule_named, bias_scales, quantize_bias
from core.parameters.finished_type import Granularity, PerAxis, PerBlock, PerTensor
from core.plan.operands import static_shape
from service.http.json_body import MEDIA_TYPE, receive_json
from service.http.openapi_operation import json_operation
from service.http.query import no_query
from service.http.responses import BuffersResponse, json_response, json_text
from service.json_api.schemas.ranges import BiasReply, BiasRequest, ParametersReply, RangeRequest
from service.json_api.tensors import output_pieces, read_elements
from service.operations.parameters import (
    CHARACTERS_PER_SCALE,
    at_range,
    finished_parameters,
    finished_type,
    read_rule,
)
from service.operations.types import check_rank, read_tensor_type
from service.runtime.runtime import require_ready
from service.runtime.settings import Settings

router = APIRouter(prefix="/v1/parameters", tags=["params"], dependencies=[Depends(no_query)])

_wrong = InvalidRequestError.of_field

_EXAMPLE = {"minimums": [-1.0], "maximums": [2.0], "storage": "i8", "scheme": "litert"}
_BIAS_EXAMPLE = {
    "input_scale": 0.5,
    "weight_scales": [0.25, 0.125],
    "scheme": "litert",
    "bias": {"type": "tensor<2xf32>", "values": [1.0, -2.5]},
}
_F32 = FLOATS["f32"]


@router.post("/range", **json_operation("deriveFromRange", RangeRequest, ParametersReply, _EXAMPLE))
async def derive_from_range(request: Request) -> Response:
    """Derive scale and zero point from a range, by the rule of a system."""
    running = require_ready(request)
    call, _ = await receive_json(request, RangeRequest, running)

    def work() -> Response:
        rule, storage, expressed, options = read_rule(call.scheme, call.storage, call.expressed, call.options)
        if len(call.maximums) != len(call.minimums):
            detail = f"there are {len(call.minimums)} minimums and {len(call.maximums)} maximums; as many of both"
            raise _wrong("/maximums", "wrong_length", detail)
        granularity = _granularity(call, running.settings)
        with at("/scheme"):
            rule.check_blocks(blocks=isinstance(granularity, PerBlock))
        with at_range("/minimums"), at("/storage", UnsupportedError):
            found = rule.derive_all(np.array(call.minimums), np.array(call.maximums), storage, options)
        return json_response(ParametersReply(**finished_parameters(rule, expressed, found, granularity)))

    return await running.executor.run_text(len(call.minimums) * CHARACTERS_PER_SCALE, work)


def _granularity(call: RangeRequest, settings: Settings) -> Granularity:
    """Return what the ranges are of: the tensor, the indices of an axis, or blocks."""
    count, given = len(call.minimums), call.model_fields_set
    if "shape" in given or "block_sizes" in given:
        if "axis" in given:
            raise _wrong("/axis", "extra_forbidden", "axis is for one range per index; blocks have block_sizes")
        if not call.shape:
            raise _wrong("/shape", "missing", "blocks need the shape of the tensor, of at least one dimension")
        if len(call.shape) != len(call.block_sizes):
            detail = f"there are {len(call.block_sizes)} block_sizes for {len(call.shape)} dimensions of shape"
            raise _wrong("/block_sizes", "wrong_length", detail)
        check_rank("shape", len(call.shape), settings.max_rank, "/shape")
        blocks = PerBlock(tuple(call.shape), tuple(call.block_sizes))
        if blocks.count != count:
            detail = f"there are {count} minimums; the shape has {prod(blocks.scale_shape)} blocks"
            raise TypeFitError(detail, pointer="/minimums")
        return blocks
    if "axis" in given:
        return PerAxis(call.axis, count)
    if count > 1:
        raise _wrong(
            "/axis", "missing", f"there are {count} ranges: say of which axis, or of which block_sizes of a shape"
        )
    return PerTensor()


@dataclass(frozen=True, slots=True)
class _Bias:
    """What is known of a bias before its elements are read."""

    rule: BiasRule
    scales: Any
    fields: dict[str, Any]
    tensor: TensorType | None


@router.post("/bias", **json_operation("deriveBias", BiasRequest, BiasReply, _BIAS_EXAMPLE))
async def derive_bias(request: Request) -> Response:
    """Derive the scale of a bias from the scales of input and weights, and quantize the bias to int32."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, BiasRequest, running)

    def decide() -> _Bias:
        with at("/scheme"):
            rule = bias_rule_named(call.scheme)
        with at_range("/weight_scales"):
            scales = bias_scales(rule, call.input_scale, np.array(call.weight_scales))
        granularity = PerTensor() if scales.size == 1 else PerAxis(0, scales.size)
        fields = finished_type(BIAS_STORAGE, _F32, scales, np.zeros(scales.size, np.int64), granularity)
        if "bias" not in call.model_fields_set:
            return _Bias(rule, scales, fields, None)
        tensor = read_tensor_type(call.bias.type, settings, "/bias/type")
        with at("/bias/type"):
            _check_bias(tensor, scales.size)
        return _Bias(rule, scales, fields, tensor)

    def work() -> Response:
        reply = {
            "scheme": planned.rule.name,
            "scales": planned.scales.tolist(),
            "zero_points": [0] * planned.scales.size,
            **planned.fields,
        }
        head = json_text(reply)
        if planned.tensor is None:
            return BuffersResponse([head], MEDIA_TYPE)
        shape = static_shape(planned.tensor)
        values = read_elements(call.bias, planned.tensor, np.dtype("<f4"), "bias", body, settings)
        with at_range("/weight_scales"), at("/bias"):
            found = quantize_bias(planned.rule, values, planned.scales)
        # Where no type has the scales, the integers have the type of integers.
        type_ = TensorType(shape, IntegerElement(32))
        text = print_tensor(type_, planned.fields["type"]) if "type" in planned.fields else print_type(type_)
        report = {
            "elements": values.size,
            "saturated_low": found.saturated_low,
            "saturated_high": found.saturated_high,
        }
        in_values = call.bias.in_values
        output = output_pieces(type_, found.values, in_values=in_values, text=text)
        return BuffersResponse(
            [head[:-1] + b',"output":', *output, b',"report":' + json_text(report) + b"}"], MEDIA_TYPE
        )

    planned = await running.executor.run_text(len(call.weight_scales) * CHARACTERS_PER_SCALE, decide)
    return await running.executor.run_array(len(body), work)


def _check_bias(tensor: TensorType, scales: int) -> None:
    if tensor.element != _F32:
        raise UnsupportedError("a bias is quantized from f32")
    shape = static_shape(tensor)
    if scales > 1 and shape != (scales,):
        raise TypeFitError(
            f"{scales} weight scales need a bias of shape {scales}; a tensor of rank {len(shape)} is given"
        )
