"""The JSON face of the three conversions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar, cast

import numpy as np
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from core.compare.error_report import conversion_error
from core.convert.dequantize import plan_dequantize
from core.convert.quantize import plan_quantize, rounding_named
from core.convert.requantize import ScalingPlan, plan_requantize
from core.errors import ParameterError, PreconditionError, UnsupportedError
from core.mlir import print_type
from core.mlir.types import TensorType
from core.plan.operands import element_name
from core.plan.packing import Packing
from core.plan.plan import Plan
from core.schemes import Multiplier, scheme_named
from service.http.json_body import MEDIA_TYPE, receive_json
from service.http.openapi_operation import json_operation
from service.http.problems import at, sides
from service.http.query import no_query
from service.http.responses import BuffersResponse, json_text
from service.json_api.schemas.conversions import (
    ConversionReply,
    DequantizeRequest,
    QuantizeRequest,
    RequantizeReply,
    RequantizeRequest,
)
from service.json_api.tensors import output_pieces, read_elements
from service.operations.error_measures import error_measures
from service.operations.plan_bytes import plan_bytes
from service.operations.types import read_tensor_type, read_type
from service.runtime.executor import CHARACTERS_PER_FACTOR
from service.runtime.request_context import reserve_memory
from service.runtime.runtime import require_ready
from service.runtime.settings import Settings

router = APIRouter(tags=["ops"], dependencies=[Depends(no_query)])

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
    """Quantize a tensor to a given type, or cast it to a narrower float."""

    def plan(call: QuantizeRequest, input_type: TensorType, settings: Settings) -> Plan:
        output_type = read_type(call.output_type, settings.max_type_bytes, "/output_type")
        rounding = None
        if "rounding" in call.model_fields_set:
            with at("/rounding"):
                rounding = rounding_named(call.rounding)
        return plan_quantize(
            input_type,
            output_type,
            call.profile,
            rounding=rounding,
            nan=call.nan,
            seed=call.seed,
            saturate=call.saturate,
        )

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
    """Dequantize a tensor, or widen a tensor of small floats."""

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
    """Requantize quantized values or accumulators to another scale in integer arithmetic."""

    def plan(call: RequantizeRequest, input_type: TensorType, settings: Settings) -> Plan:
        output_type = read_type(call.output_type, settings.max_type_bytes, "/output_type")
        given = call.model_fields_set
        with at("/scheme"):
            scheme = scheme_named(call.scheme).name if "scheme" in given else None
        axis = call.axis if "axis" in given else None
        if "multipliers" not in given:
            return plan_requantize(input_type, output_type, call.profile, scheme=scheme, axis=axis)
        multipliers = cast(list[Multiplier], call.multipliers)  # what the model makes of its pairs
        with at("/multipliers", ParameterError, PreconditionError):
            return plan_requantize(input_type, output_type, call.profile, multipliers, scheme=scheme, axis=axis)

    return await _convert(request, RequantizeRequest, plan)


async def _convert(
    request: Request, model: type[Call], plan_for: Callable[[Call, TensorType, Settings], Plan]
) -> Response:
    """Receive, read, plan, run and reply: the same for every conversion but for its plan."""
    running = require_ready(request)
    operation = request.scope["path"].rpartition("/")[2]
    call, body = await receive_json(request, model, running)
    dense = call.packing is Packing.DENSE

    def decide() -> tuple[Plan, str]:
        input_type = read_tensor_type(call.input.type, running.settings, "/input/type")
        with at("/profile", UnsupportedError), sides(input="/input/type", output="/output_type"):
            plan = plan_for(call, input_type, running.settings)
        return plan, print_type(plan.output_type)

    def convert() -> Response:
        packed_in = dense and not isinstance(call, QuantizeRequest)
        source = read_elements(
            call.input,
            plan.input_type,
            plan.input_dtype,
            "input",
            body,
            running.settings,
            dense=packed_in,
        )
        target = np.empty(plan.elements, plan.output_dtype)
        found = plan.run(source, target)
        saturated = found.saturated_low + found.saturated_high
        running.metrics.converted(
            operation, found.profile, element_name(plan.output_type.element), plan.elements, saturated
        )
        report = found._asdict()
        if isinstance(plan, ScalingPlan):
            report["scheme"] = plan.scheme.name
        if isinstance(call, QuantizeRequest) and call.error:
            report["error"] = error_measures(conversion_error(plan, source, target))
        in_values = "values" in call.input.model_fields_set
        packed_out = dense and not in_values and not isinstance(call, DequantizeRequest)
        output = output_pieces(plan.output_type, target, in_values=in_values, dense=packed_out, text=output_type)
        tail = b',"report":' + json_text(report)
        if isinstance(call, RequantizeRequest):
            tail += b',"multipliers":' + _multipliers_text(plan.multipliers)
        return BuffersResponse([b'{"output":', *output, tail + b"}"], MEDIA_TYPE)

    characters = len(call.input.type) + len(call.output_type)
    if isinstance(call, RequantizeRequest):
        characters += len(call.multipliers) * CHARACTERS_PER_FACTOR
    key = _key(call)
    planned: tuple[Plan, str] | None = None if key is None else running.planned.get(key)
    if planned is None:
        planned = await running.executor.run_text(characters, decide)
        if key is not None:
            running.planned.put(key, planned, plan_bytes(planned[0], characters))
    plan, output_type = planned
    # The result, and base64 of it. A type that promises more elements than the body has bits will be refused.
    result_bytes = min(plan.elements, 8 * len(body)) * plan.output_dtype.itemsize
    await reserve_memory(request.scope, result_bytes + result_bytes * 4 // 3)
    if "values" in call.input.model_fields_set or (isinstance(call, QuantizeRequest) and call.error):
        return await running.executor.run_array(len(body), convert)
    kind = ("base64", type(plan), plan.input_dtype, plan.output_dtype, plan.rounding, dense)
    return await running.executor.run_array(len(body), convert, kind)


def _key(call: ConversionRequest) -> Hashable | None:
    """Return what the plan of a call depends on: its class, and all that was given but the elements.

    Multipliers may be very many. A plan with given ones is not kept.
    """
    given = call.model_fields_set
    if "multipliers" in given:
        return None
    return type(call), call.input.type, frozenset((name, getattr(call, name)) for name in given if name != "input")


def _multipliers_text(multipliers: Iterable[Multiplier]) -> bytes:
    """Return them as JSON. There may be very many, and an encoder would let no other thread run meanwhile."""
    texts = (f'{{"multiplier":{each.multiplier},"shift":{each.shift}}}' for each in multipliers)
    return f"[{','.join(texts)}]".encode()
