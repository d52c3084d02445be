"""MLIR modules in JSON: functions run on tensors."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.errors import default_pointer
from requant.mlir.types import Type
from requant.operations.modules import (
    TypedElements,
    evaluate_module,
    evaluation_bytes,
    exchanged_dtype,
)
from requant.plan.operands import static_shape
from requant_service.http.json_body import MEDIA_TYPE, receive_json
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import Buffer, BuffersResponse
from requant_service.json_api.schemas.lowering import EvaluateReply, EvaluateRequest
from requant_service.json_api.tensors import output_pieces, read_elements
from requant_service.operations.described import limits_of
from requant_service.operations.types import read_tensor_type
from requant_service.runtime.request_context import reserve_memory
from requant_service.runtime.runtime import require_ready

router = APIRouter(prefix="/v1", tags=["modules"], dependencies=[Depends(no_query)])

_ADD = "tensor<!quant.uniform<i8:f32, 1.0>>, tensor<!quant.uniform<i8:f32, 2.0:1>>"
_SUM = "tensor<!quant.uniform<i8:f32, 3.0:2>>"
_EVALUATED = {
    "module": "func.func @add(%x: tensor<!quant.uniform<i8:f32, 1.0>>, %y: tensor<!quant.uniform<i8:f32, 2.0:1>>) -> "
    f"{_SUM} {{\n  %r = stablehlo.add %x, %y : ({_ADD}) -> {_SUM}\n  return %r : {_SUM}\n}}\n",
    "function": "add",
    "inputs": [
        {"type": "tensor<!quant.uniform<i8:f32, 1.0>>", "values": [7]},
        {"type": "tensor<!quant.uniform<i8:f32, 2.0:1>>", "values": [5]},
    ],
}


@router.post("/evaluate", **json_operation("evaluate", "Evaluate a module", EvaluateRequest, EvaluateReply, _EVALUATED))
async def evaluate(request: Request) -> Response:
    """Evaluate a function of a module, quantized or lowered, on tensors."""
    running = require_ready(request)
    settings, limits = running.settings, limits_of(running.settings).module
    call, body = await receive_json(request, EvaluateRequest, running)
    await reserve_memory(request.scope, evaluation_bytes(limits))

    def read_inputs(_: Sequence[Type]) -> list[TypedElements]:
        found = []
        for index, given in enumerate(call.inputs):
            type_ = read_tensor_type(given.type, settings, f"/inputs/{index}/type")
            with default_pointer(f"/inputs/{index}/type"):
                static_shape(type_)
                dtype = exchanged_dtype(type_.element)
            found.append(TypedElements(type_, read_elements(given, type_, dtype, f"inputs/{index}", body, settings)))
        return found

    def work() -> Response:
        outputs = evaluate_module(call.module, call.function, read_inputs, limits)
        in_values = all(given.in_values for given in call.inputs)
        pieces: list[Buffer] = []
        for output in outputs:
            pieces += [b"," if pieces else b"", *output_pieces(output.type, output.elements, in_values=in_values)]
        return BuffersResponse([b'{"outputs":[', *pieces, b"]}"], MEDIA_TYPE)

    return await running.executor.run_module(work)
