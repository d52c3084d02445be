"""MLIR modules: passes that lower quantized operations, and functions run on tensors.

xDSL takes a third of a second to import, so the first module does it, in the thread of modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from core.errors import LimitError, LoweringError, PreconditionError, at
from core.plan.operands import static_shape
from service.http.json_body import MEDIA_TYPE, receive_json
from service.http.json_document import JsonDocument
from service.http.openapi_operation import json_operation
from service.http.query import no_query
from service.http.responses import Buffer, BuffersResponse, json_response
from service.json_api.schemas.lowering import EvaluateReply, EvaluateRequest, LowerReply, LowerRequest
from service.json_api.tensors import output_pieces, read_elements
from service.operations.types import read_tensor_type
from service.runtime.request_context import reserve_memory
from service.runtime.runtime import require_ready
from service.runtime.settings import Settings

if TYPE_CHECKING:
    from core.lowering.module import Module

router = APIRouter(prefix="/v1", tags=["modules"], dependencies=[Depends(no_query)])

_QUANTIZED = "tensor<2x!quant.uniform<i8:f32, 0.5:3>>"
_EXAMPLE = {
    "module": f"func.func @main(%x: tensor<2xf32>) -> {_QUANTIZED} {{\n"
    f"  %q = quant.qcast %x : tensor<2xf32> to {_QUANTIZED}\n  return %q : {_QUANTIZED}\n}}\n",
    "passes": ["lower-quant-ops", "strip-func-quant-types"],
}


@router.post("/lower", **json_operation("lower", LowerRequest, LowerReply, _EXAMPLE))
async def lower(request: Request) -> Response:
    """Run passes on a module and print the result."""
    running = require_ready(request)
    call, _ = await receive_json(request, LowerRequest, running)
    return await running.executor.run_module(lambda: _lowered(call, running.settings))


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


@router.post("/evaluate", **json_operation("evaluate", EvaluateRequest, EvaluateReply, _EVALUATED))
async def evaluate(request: Request) -> Response:
    """Evaluate a function of a module, quantized or lowered, on tensors."""
    running = require_ready(request)
    call, body = await receive_json(request, EvaluateRequest, running)
    await reserve_memory(request.scope, 2 * running.settings.max_evaluation_bytes)
    return await running.executor.run_module(lambda: _evaluated(call, body, running.settings))


def _evaluated(call: EvaluateRequest, body: JsonDocument, settings: Settings) -> Response:
    from core.lowering.evaluate import Tensor, function_named
    from core.lowering.evaluate import evaluate as run
    from core.lowering.evaluate.arrays import dtype_of

    module = _read(call.module, settings, "/module")
    with at("/function"):
        function = function_named(module, call.function or None)
    inputs = []
    for index, given in enumerate(call.inputs):
        type_ = read_tensor_type(given.type, settings, f"/inputs/{index}/type")
        with at(f"/inputs/{index}/type"):
            shape, dtype = static_shape(type_), dtype_of(type_.element)
        held = np.dtype(np.int8) if dtype == np.bool_ else np.dtype(np.uint16) if dtype.name == "bfloat16" else dtype
        elements = read_elements(given, type_, held, f"inputs/{index}", body, settings)
        inputs.append(Tensor(type_, (elements != 0 if dtype == np.bool_ else elements.view(dtype)).reshape(shape)))
    with at("/module", LoweringError, PreconditionError, LimitError):
        outputs = run(module, function, inputs)
    in_values = all(given.in_values for given in call.inputs)
    pieces: list[Buffer] = []
    for output in outputs:
        flat = np.ascontiguousarray(output.elements).reshape(-1)
        flat = flat.astype(np.int8) if flat.dtype == np.bool_ else flat
        flat = flat.view(np.uint16) if flat.dtype.name == "bfloat16" else flat
        pieces += [
            b"," if pieces else b"",
            *output_pieces(output.type, flat, in_values=in_values),
        ]
    return BuffersResponse([b'{"outputs":[', *pieces, b"]}"], MEDIA_TYPE)


def _lowered(call: LowerRequest, settings: Settings) -> Response:
    from core.lowering.passes import apply, parse_pass

    limit = settings.max_passes
    if len(call.passes) > limit:
        detail = f"there are {len(call.passes)} passes; the limit is {limit}"
        raise LimitError(detail, limit=limit, pointer="/passes")
    passes = []
    for index, text in enumerate(call.passes):
        with at(f"/passes/{index}"):
            passes.append(parse_pass(text))
    module = _read(call.module, settings, "/module")
    with at("/module"):
        apply(module, passes)
        return json_response(LowerReply(module=module.write()))


def _read(text: str, settings: Settings, pointer: str) -> Module:
    """Read the module in the field at `pointer`. Raises what `core.lowering.module.read_module` does."""
    from core.lowering.limits import ModuleLimits
    from core.lowering.module import read_module

    limit = settings.max_module_bytes
    with at(pointer):
        if len(text) > limit or len(text.encode("utf-8", "surrogatepass")) > limit:
            raise LimitError(f"the module has more than {limit} bytes", limit=limit)
        limits = ModuleLimits(
            characters=limit,
            operations=settings.max_module_operations,
            constant_elements=settings.max_module_constants,
            evaluation_bytes=settings.max_evaluation_bytes,
            evaluation_products=settings.max_evaluation_products,
        )
        return read_module(text, limits)
