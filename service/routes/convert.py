"""The JSON face of the three conversions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
from fastapi import APIRouter, Depends
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from core.dequantize import plan_dequantize
from core.errors import LimitError, ParameterError, PreconditionError, UnknownNameError
from core.mlir import print_type
from core.mlir.types import TensorType
from core.parameters.multipliers import Multiplier
from core.plan import Plan
from core.quantize import plan_quantize
from core.report import Report
from core.requantize import plan_requantize
from service.codecs import base64_tensor, values
from service.compute import CHARACTERS_PER_FACTOR
from service.json_body import MEDIA_TYPE, receive_json
from service.lifespan import require_ready
from service.operation import json_operation
from service.problems import at
from service.query import no_query
from service.replies import Piece, PiecesResponse, json_text
from service.schemas import (
    ConversionReply,
    DequantizeRequest,
    QuantizeRequest,
    RequantizeReply,
    RequantizeRequest,
    Tensor,
)
from service.settings import Settings
from service.type_text import read_tensor_type, read_type

router = APIRouter(tags=["ops"], dependencies=[Depends(no_query)])

Array = NDArray[Any]
ConversionRequest = QuantizeRequest | DequantizeRequest | RequantizeRequest
Call = TypeVar("Call", bound=ConversionRequest)


_QUANTIZED = "tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>"


@router.post(
    "/v1/quantize",
    **json_operation(
        "quantize",
        QuantizeRequest,
        ConversionReply,
        example={
            "input": {"type": "tensor<2x2xf32>", "values": [0.25, 0.75, -1.5, "Infinity"]},
            "output_type": "!quant.uniform<i8:f32, 0.5:3>",
        },
    ),
)
async def quantize(request: Request) -> Response:
    """Quantize real numbers to the type that you name."""

    def plan(call: QuantizeRequest, input_type: TensorType, settings: Settings) -> Plan:
        output_type = read_type(call.output_type, settings.max_type_bytes, "/output_type")
        return plan_quantize(input_type, output_type, call.profile)

    return await _convert(request, QuantizeRequest, plan)


@router.post(
    "/v1/dequantize",
    **json_operation(
        "dequantize",
        DequantizeRequest,
        ConversionReply,
        example={"input": {"type": _QUANTIZED, "values": [3, 4, 0, 127]}},
    ),
)
async def dequantize(request: Request) -> Response:
    """Turn stored numbers back into the real numbers that they stand for."""

    def plan(call: DequantizeRequest, input_type: TensorType, settings: Settings) -> Plan:
        named = "output_type" in call.model_fields_set
        output_type = read_type(call.output_type, settings.max_type_bytes, "/output_type") if named else None
        return plan_dequantize(input_type, output_type, call.profile)

    return await _convert(request, DequantizeRequest, plan)


@router.post(
    "/v1/requantize",
    **json_operation(
        "requantize",
        RequantizeRequest,
        RequantizeReply,
        example={
            "input": {"type": "tensor<4x!quant.uniform<i32:f32, 0.001>>", "data": "6AMAANAHAAC4CwAAoA8AAA=="},
            "output_type": "!quant.uniform<i8:f32, 0.25:-1>",
        },
    ),
)
async def requantize(request: Request) -> Response:
    """Move stored numbers, or accumulators, to another scale in integer arithmetic."""

    def plan(call: RequantizeRequest, input_type: TensorType, settings: Settings) -> Plan:
        output_type = read_type(call.output_type, settings.max_type_bytes, "/output_type")
        if "multipliers" not in call.model_fields_set:
            return plan_requantize(input_type, output_type, call.profile)
        multipliers = [Multiplier(pair.multiplier, pair.shift) for pair in call.multipliers]
        with at("/multipliers", ParameterError, PreconditionError):
            return plan_requantize(input_type, output_type, call.profile, multipliers)

    return await _convert(request, RequantizeRequest, plan)


async def _convert(
    request: Request, model: type[Call], plan_for: Callable[[Call, TensorType, Settings], Plan]
) -> Response:
    """Receive, read, plan, run and reply: the same for every conversion but for its plan."""
    running = require_ready(request)
    call, body = await receive_json(request, model, running)

    def decide() -> tuple[Plan, str]:
        input_type = read_tensor_type(call.input.type, running.settings, "/input/type")
        with at("/profile", UnknownNameError):
            plan = plan_for(call, input_type, running.settings)
        return plan, print_type(plan.output_type)

    def convert() -> Response:
        source = _source(call.input, plan, body, running.settings)
        target = np.empty(plan.elements, plan.output_dtype)
        return _reply(plan, output_type, plan.run(source, target), target, call)

    characters = len(call.input.type) + len(call.output_type)
    if isinstance(call, RequantizeRequest):
        characters += len(call.multipliers) * CHARACTERS_PER_FACTOR
    plan, output_type = await running.compute.texts(characters, decide)
    return await running.compute.arrays(len(body), convert)


def _source(tensor: Tensor, plan: Plan, body: bytes, settings: Settings) -> Array:
    """Return the input's elements, in the form that the plan takes."""
    if "data" in tensor.model_fields_set:
        with at("/input/data"):
            return base64_tensor.decode(tensor.data, plan.input_dtype, plan.elements)

    def literals() -> list[str]:
        written: list[str] = json.loads(body, parse_float=str, parse_int=str)["input"]["values"]
        return written

    with at("/input/values"):
        if len(tensor.values) > settings.max_values:
            raise LimitError(
                f"there are {len(tensor.values)} values; more than {settings.max_values} elements are sent as data",
                limit=settings.max_values,
            )
        return values.decode(tensor.values, plan.input_dtype, plan.elements, literals)


def _reply(plan: Plan, output_type: str, report: Report, target: Array, call: ConversionRequest) -> Response:
    """Return the reply, in the form of the input. The tensor's data are never copied into the rest of the JSON."""
    head = b'{"output":{"type":' + json_text(output_type)
    if "data" in call.input.model_fields_set:
        pieces: list[Piece] = [head, b',"data":"', base64_tensor.encode(target), b'"']
    else:
        pieces = [head, b',"values":', values.encode(target)]
    tail = b'},"report":' + json_text(asdict(report))
    if isinstance(call, RequantizeRequest):
        tail += b',"multipliers":' + json_text([asdict(multiplier) for multiplier in plan.multipliers])
    return PiecesResponse([*pieces, tail + b"}"], MEDIA_TYPE)
