"""Other systems' operators: one route for each description, and what there is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from math import prod

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from core.errors import UnknownNameError, UnsupportedError, excerpt
from core.mlir import print_type
from core.operators.checks import checked_call
from core.operators.description import Kind, OperandTensor, Operator, Value, Work
from core.operators.element_names import container
from core.operators.registry import OPERATORS, operator_named
from core.plan.operands import static_shape
from service.http.json_body import MEDIA_TYPE, receive_json
from service.http.json_document import JsonDocument
from service.http.openapi_operation import json_operation, static_operation
from service.http.problems import at, error_response
from service.http.query import no_query
from service.http.responses import Buffer, BuffersResponse, json_text
from service.http.static_content import static_json
from service.json_api.catalog.operators import operator_page, route_path
from service.json_api.contraction import check_size, weight_of
from service.json_api.schemas.base import RequestModel, Tensor
from service.json_api.schemas.operators import (
    OperatorList,
    OperatorPage,
    operation_id,
    reply_model,
    request_model,
)
from service.json_api.tensors import output_pieces, read_elements
from service.operations.types import read_tensor_type, read_type
from service.runtime.request_context import reserve_memory
from service.runtime.runtime import require_ready
from service.runtime.settings import Settings

router = APIRouter(tags=["operators"], dependencies=[Depends(no_query)])


_PAGES = {name: static_json(partial(operator_page, operator)) for name, operator in OPERATORS.items()}
_PAGE_LIST = static_json(lambda: OperatorList(operators=[operator_page(operator) for operator in OPERATORS.values()]))


@router.get("/v1/operators", **static_operation("listOperators", OperatorList))
async def list_operators(request: Request) -> Response:
    """List the operators of other systems, with operands, attributes and versions."""
    return await _PAGE_LIST.response(request)


@router.get("/v1/operators/{name}", **static_operation("getOperator", OperatorPage, 404))
async def get_operator(request: Request, name: str) -> Response:
    """Describe one operator, such as onnx.QuantizeLinear."""
    try:
        operator = operator_named(name)
    except UnknownNameError as error:
        return error_response(request, error, status=404)
    return await _PAGES[operator.full_name].response(request)


def _read_input(name: str, given: Tensor, body: JsonDocument, settings: Settings) -> OperandTensor:
    place = f"/inputs/{name}/type"
    tensor = read_tensor_type(given.type, settings, place)
    with at(place):
        shape, dtype = static_shape(tensor), container(tensor.element)
        if dtype is None:
            raise UnsupportedError(f"tensors of {excerpt(print_type(tensor.element))} are not supported")
    data = read_elements(given, tensor, dtype, prod(shape), f"inputs/{name}", body, settings)
    return OperandTensor(tensor, data)


def _read_attributes(call: RequestModel, operator: Operator, settings: Settings) -> dict[str, Value]:
    """Return the attributes that are there, types read."""
    given = getattr(call, "attributes", None)
    if given is None:
        return {}
    kinds = {attribute.name: attribute.kind for attribute in operator.attributes}
    values: dict[str, Value] = {}
    for name in given.model_fields_set:
        value = getattr(given, name)
        if kinds[name] is Kind.TYPE:
            value = read_type(value, settings.max_type_bytes, f"/attributes/{name}")
        values[name] = value
    return values


def _reply(outputs: dict[str, OperandTensor], settings: Settings, *, in_values: bool) -> Response:
    """Write the outputs, as values if that is asked for and none of them is too large."""
    in_values = in_values and all(each.data.size <= settings.max_values for each in outputs.values())
    pieces: list[Buffer] = [b'{"outputs":{']
    for index, (name, tensor) in enumerate(outputs.items()):
        pieces.append((b"," if index else b"") + json_text(name) + b":")
        pieces += output_pieces(tensor.type, print_type(tensor.type), tensor.data, in_values=in_values)
    return BuffersResponse([*pieces, b"}}"], MEDIA_TYPE)


def _handler(operator: Operator) -> Callable[[Request], Awaitable[Response]]:
    model = request_model(operator)

    async def call_operator(request: Request) -> Response:
        running = require_ready(request)
        settings = running.settings
        call, body = await receive_json(request, model, running)
        given = {name: getattr(call.inputs, name) for name in call.inputs.model_fields_set}  # type: ignore[attr-defined]

        def read() -> dict[str, OperandTensor]:
            return {name: _read_input(name, tensor, body, settings) for name, tensor in given.items()}

        inputs = await running.executor.run_array(len(body), read)

        def decide() -> Work:
            opset, implementation = getattr(call, "opset", None), getattr(call, "implementation", "")
            attributes = _read_attributes(call, operator, settings)
            work = operator.work_of(checked_call(operator, opset, implementation, inputs, attributes))
            check_size(work.elements, work.products, settings)
            return work

        sizes = sorted(tensor.data.size for tensor in inputs.values())
        planned = await running.executor.run_text(sum(sizes[:-1]), decide)
        await reserve_memory(request.scope, planned.working_bytes(inputs))

        def work() -> Response:
            return _reply(
                dict(planned.run()),
                settings,
                in_values=all("values" in each.model_fields_set for each in given.values()),
            )

        weight = weight_of(planned.elements, planned.products)
        return await running.executor.run_array(max(len(body), weight), work)

    call_operator.__doc__ = f"{operator.summary} {operator.source}."
    call_operator.__name__ = operation_id(operator)
    return call_operator


for _operator in OPERATORS.values():
    router.add_api_route(
        route_path(_operator),
        _handler(_operator),
        methods=["POST"],
        **json_operation(
            operation_id(_operator),
            request_model(_operator),
            reply_model(_operator),
            example=dict(_operator.example),
        ),
    )
