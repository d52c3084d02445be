"""The three conversions in JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

import numpy as np
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.convert.explain.explanation import Explanation
from requant.errors import InvalidRequestError, RequantError, default_pointer
from requant.mlir.types import Type
from requant.operations.conversions import CONVERSIONS
from requant.operations.explain import BYTES_PER_EXPLAINED_ELEMENT, explanation_members
from requant.plan.plan import Array, Packing, check_spare_bits
from requant.profiles import Operation
from requant.schemes import Multiplier
from requant_service.http.json_body import MEDIA_TYPE, receive_json
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import BuffersResponse, json_text
from requant_service.json_api.schemas.conversions import (
    ConversionReply,
    DequantizeRequest,
    QuantizeReply,
    QuantizeRequest,
    RequantizeReply,
    RequantizeRequest,
)
from requant_service.json_api.tensors import output_pieces, read_elements
from requant_service.operations.calibration.quantization import (
    DerivedScales,
    derive_quantization,
    open_type,
    plan_derivation,
)
from requant_service.operations.conversion_call import (
    CHARACTERS_PER_ELEMENT,
    ConversionCall,
    error_measures,
    given_options,
    planned_conversion,
    planned_explanation,
)
from requant_service.operations.conversion_run import Converted, convert_array
from requant_service.runtime.request_context import reserve_memory
from requant_service.runtime.runtime import require_ready
from requant_service.runtime.settings import Settings

router = APIRouter(tags=["ops"], dependencies=[Depends(no_query)])


async def answer_conversion(request: Request, operation: Operation, model: Any, *, explained: bool = False) -> Response:
    """Receive, read, plan, convert and reply. `explained`: with the steps of each element."""
    running = require_ready(request)
    parsed, body = await receive_json(request, model, running)
    in_values, characters = parsed.input.in_values, len(parsed.input.type) + len(parsed.output_type or "")
    scales: DerivedScales | None = None
    try:
        call = _call(parsed, operation, running.settings, in_values=in_values)
        if call.leaves_scales_open:
            derivation = await plan_derivation(call, characters, running)
            reading = partial(
                read_elements, parsed.input, derivation.tensor, derivation.dtype, "input", body, running.settings
            )
            source = await running.executor.run_array(len(body), reading)
            reserve = partial(reserve_memory, request.scope)
            planned, scales = await derive_quantization(derivation, source, running, reserve)
        else:
            planned = await planned_conversion(call, characters, running)
        explainer = await planned_explanation(call, planned, characters, running) if explained else None
    except RequantError as error:
        error.pointer = "/input/type" if error.pointer == "/input_type" else error.pointer
        raise
    # The result, and base64 of it. A type that promises more elements than the body has bits will be refused.
    result_bytes = min(planned.elements, 8 * len(body)) * planned.plan.output_dtype.itemsize
    told_bytes = BYTES_PER_EXPLAINED_ELEMENT * planned.elements if explained else 0
    await reserve_memory(request.scope, result_bytes + result_bytes * 4 // 3 + told_bytes)
    if in_values and parsed.packing is Packing.DENSE and operation is not Operation.QUANTIZE:
        message = "values are numbers and not packed; send data"
        raise InvalidRequestError.of_field("/packing", "packing_of_values", "only data can be packed", message=message)

    def read() -> Array:
        dtype, entries, type_ = planned.input_dtype, planned.input_entries, planned.plan.input_type
        elements = read_elements(parsed.input, type_, dtype, "input", body, running.settings, entries=entries)
        if planned.packed_in is not None:
            with default_pointer("/input/data"):
                check_spare_bits(elements, planned.elements, planned.packed_in)
        return elements

    def work() -> Response:
        elements = read() if scales is None else source
        converted = convert_array(elements, planned, running.metrics)
        explanation = None if explainer is None else explainer.run(planned.unpacked(elements, 0))
        return _reply(converted, scales, explanation, in_values=in_values)

    if explained:
        return await running.executor.run_text(len(body) + CHARACTERS_PER_ELEMENT * planned.elements, work)
    kind = None if in_values or planned.measured or scales is not None else ("base64", *planned.kind)
    return await running.executor.run_array(len(body), work, kind)


def _call(parsed: Any, operation: Operation, settings: Settings, *, in_values: bool) -> ConversionCall:
    sent = parsed.model_fields_set
    output_type: Type | str | None = parsed.output_type if "output_type" in sent else None
    calibration: dict[str, Any] = {}
    if isinstance(parsed, QuantizeRequest):
        output_type = open_type(output_type, settings)
        calibration = parsed.calibration.given() if "calibration" in sent else {}
    multipliers = None
    if isinstance(parsed, RequantizeRequest) and "multipliers" in sent:
        multipliers = cast(tuple[Multiplier, ...], tuple(parsed.multipliers))  # what the model makes of its pairs
    return ConversionCall(
        operation=operation,
        profile=parsed.profile,
        input_type=parsed.input.type,
        output_type=output_type,
        options=given_options(operation, {name: getattr(parsed, name) for name in sent}),
        multipliers=multipliers,
        packing=Packing.UNPACKED if in_values else parsed.packing,
        measured=isinstance(parsed, QuantizeRequest) and parsed.error,
        calibration=tuple(calibration.items()),
    )


def _reply(
    converted: Converted, scales: DerivedScales | None, explanation: Explanation | None, *, in_values: bool
) -> Response:
    assert isinstance(converted.output, np.ndarray)
    planned = converted.result.planned
    report = converted.result.report._asdict() | planned.scheme
    if converted.result.error is not None:
        report["error"] = error_measures(converted.result.error)
    output = output_pieces(planned.plan.output_type, converted.output, in_values=in_values, text=planned.output_type)
    tail = b',"report":' + json_text(report)
    if planned.operation is Operation.REQUANTIZE:
        tail += b',"multipliers":' + _multipliers_text(planned.plan.multipliers)
    if scales is not None:
        tail += b',"parameters":' + json_text(scales.members())
    if explanation is not None:
        # Without its own braces.
        tail += b"," + json_text(explanation_members(explanation))[1:-1]
    return BuffersResponse([b'{"output":', *output, tail + b"}"], MEDIA_TYPE)


def _multipliers_text(multipliers: Iterable[Multiplier]) -> bytes:
    """Return them as JSON. There may be very many, and an encoder would let no other thread run meanwhile."""
    texts = (f'{{"multiplier":{each.multiplier},"shift":{each.shift}}}' for each in multipliers)
    return f"[{','.join(texts)}]".encode()


def _handler(conversion: Operation, model: Any) -> Callable[[Request], Awaitable[Response]]:
    async def convert(request: Request) -> Response:
        return await answer_conversion(request, conversion, model)

    convert.__doc__ = CONVERSIONS[conversion].summary
    convert.__name__ = CONVERSIONS[conversion].name
    return convert


_MODELS: Mapping[Operation, tuple[Any, Any]] = {
    Operation.QUANTIZE: (QuantizeRequest, QuantizeReply),
    Operation.DEQUANTIZE: (DequantizeRequest, ConversionReply),
    Operation.REQUANTIZE: (RequantizeRequest, RequantizeReply),
}
for _conversion, (_request_model, _reply_model) in _MODELS.items():
    _described = CONVERSIONS[_conversion]
    router.add_api_route(
        f"/v1/{_described.name}",
        _handler(_conversion, _request_model),
        methods=["POST"],
        **json_operation(_described.name, _described.title, _request_model, _reply_model, example=_described.example),
    )
