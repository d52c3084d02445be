"""Other systems' operators in JSON: a route for each description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.description import Kind, TensorValue, Value
from requant.errors import default_pointer
from requant.operators.description import Operand, Operator
from requant.operators.registry import OPERATORS
from requant.plan.operands import static_shape
from requant_service.http.json_body import MEDIA_TYPE, receive_json
from requant_service.http.json_document import JsonDocument
from requant_service.http.models import RequestModel
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import Buffer, BuffersResponse, json_text
from requant_service.json_api.catalog.operators import route_path
from requant_service.json_api.schemas.operators import (
    operation_id,
    reply_model,
    request_model,
)
from requant_service.json_api.schemas.tensors import Tensor
from requant_service.json_api.tensors import output_pieces, read_elements
from requant_service.operations.operators import PlannedOperator, operand_dtype, plan_operator
from requant_service.operations.types import read_tensor_type, read_type
from requant_service.runtime.request_context import reserve_memory
from requant_service.runtime.runtime import require_ready
from requant_service.runtime.settings import Settings

router = APIRouter(dependencies=[Depends(no_query)])


def _read_input(name: str, given: Tensor, body: JsonDocument, settings: Settings) -> TensorValue:
    place = f"/inputs/{name}/type"
    tensor = read_tensor_type(given.type, settings, place)
    with default_pointer(place):
        static_shape(tensor)
        dtype = operand_dtype(tensor)
    return TensorValue(tensor, read_elements(given, tensor, dtype, f"inputs/{name}", body, settings))


def _read_attributes(call: RequestModel, operator: Operator, settings: Settings) -> dict[str, Value]:
    """Return the attributes that are there, types read."""
    given = call.given("attributes")
    values: dict[str, Value] = given["attributes"].given() if given else {}
    for attribute in operator.attributes:
        if attribute.kind is Kind.TYPE and attribute.name in values:
            text = str(values[attribute.name])
            values[attribute.name] = read_type(text, settings.max_type_bytes, f"/attributes/{attribute.name}")
    return values


def _reply(operator: Operator, found: Mapping[str, TensorValue], settings: Settings, *, in_values: bool) -> Response:
    """Write outputs and stages, as values if that is asked for and none of them is too large."""
    in_values = in_values and all(each.data.size <= settings.max_values for each in found.values())

    def written(operands: Sequence[Operand]) -> Iterator[Buffer]:
        there = [each.name for each in operands if each.name in found]
        for index, name in enumerate(there):
            yield (b"," if index else b"") + json_text(name) + b":"
            yield from output_pieces(found[name].type, found[name].data, in_values=in_values)

    pieces = [b'{"outputs":{', *written(operator.outputs), b"}"]
    if stages := [*written(operator.stages)]:
        pieces += [b',"trace":{', *stages, b"}"]
    return BuffersResponse([*pieces, b"}"], MEDIA_TYPE)


def _handler(operator: Operator) -> Callable[[Request], Awaitable[Response]]:
    model = request_model(operator)

    async def call_operator(request: Request) -> Response:
        running = require_ready(request)
        settings = running.settings
        call, body = await receive_json(request, model, running)
        given: dict[str, Tensor] = call.given("inputs")["inputs"].given()

        def read() -> dict[str, TensorValue]:
            return {name: _read_input(name, tensor, body, settings) for name, tensor in given.items()}

        operands = await running.executor.run_array(len(body), read)

        def decide() -> PlannedOperator:
            opset, implementation = getattr(call, "opset", None), getattr(call, "implementation", "")
            attributes = _read_attributes(call, operator, settings)
            return plan_operator(operator, opset, implementation, operands, attributes, settings)

        sizes = sorted(tensor.data.size for tensor in operands.values())
        planned = await running.executor.run_text(sum(sizes[:-1]), decide)
        await reserve_memory(request.scope, planned.byte_count)

        def work() -> Response:
            in_values = all(tensor.in_values for tensor in given.values())
            return _reply(operator, planned.run(), settings, in_values=in_values)

        return await running.executor.run_array(max(len(body), planned.weight), work)

    call_operator.__doc__ = f"{operator.summary} {operator.source}."
    call_operator.__name__ = operation_id(operator)
    return call_operator


for _operator in OPERATORS.values():
    router.add_api_route(
        route_path(_operator),
        _handler(_operator),
        methods=["POST"],
        tags=[_operator.system],
        **json_operation(
            operation_id(_operator),
            _operator.full_name,
            request_model(_operator),
            reply_model(_operator),
            example=_operator.example,
        ),
    )
