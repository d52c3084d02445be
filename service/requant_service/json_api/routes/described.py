"""Our own operations in JSON: a route for each description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.description import Kind, Operation, OperationCall, PlannedWork, TensorValue
from requant.errors import pointers_for_sides
from requant.operations import OPERATIONS
from requant.plan.plan import Packing
from requant_service.http.json_body import MEDIA_TYPE, receive_json
from requant_service.http.json_document import JsonDocument
from requant_service.http.models import RequestModel
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import Buffer, BuffersResponse, json_text
from requant_service.json_api.schemas.described import operation_id, reply_model, request_model
from requant_service.json_api.schemas.tensors import Tensor
from requant_service.json_api.tensors import output_pieces, read_elements
from requant_service.operations.described import plan_operation, weight
from requant_service.operations.types import read_tensor_type, read_type
from requant_service.runtime.request_context import reserve_memory
from requant_service.runtime.runtime import require_ready
from requant_service.runtime.settings import Settings

router = APIRouter(dependencies=[Depends(no_query)])


def _options(operation: Operation, request: RequestModel, settings: Settings) -> dict[str, Any]:
    """Return the value of each option, read: absent ones have their default, or None."""
    given = request.given(*(each.name for each in operation.options))
    values: dict[str, Any] = {each.name: given.get(each.name, each.default) for each in operation.options}
    for option in operation.options:
        value = values[option.name]
        if option.kind is Kind.TYPE and value is not None:
            values[option.name] = read_type(value, settings.max_type_bytes, f"/{option.name}")
        elif isinstance(value, list):
            values[option.name] = tuple(value)
    return values


class _Exchange:
    """One request: its tensors, how their elements travel, and the reply in the same form."""

    def __init__(self, operation: Operation, request: RequestModel, body: JsonDocument, settings: Settings) -> None:
        self._operation = operation
        self._request = request
        self._body = body
        self._settings = settings
        names = (each.name for each in operation.inputs if each.name in request.model_fields_set)
        self._tensors: Mapping[str, Tensor] = {name: getattr(request, name) for name in names}
        self._dense = getattr(request, "packing", None) is Packing.DENSE
        self._in_values = next(iter(self._tensors.values())).in_values

    @property
    def characters(self) -> int:
        """How many characters of types the request has."""
        texts = (getattr(self._request, each.name) for each in self._operation.options if each.kind is Kind.TYPE)
        return sum(len(text or "") for text in texts) + sum(len(each.type) for each in self._tensors.values())

    def plan(self) -> PlannedWork:
        """Plan the call."""
        places = {name: f"/{name}/type" for name in self._tensors}
        types = {
            name: read_tensor_type(tensor.type, self._settings, places[name]) for name, tensor in self._tensors.items()
        }
        call = OperationCall(types, _options(self._operation, self._request, self._settings))
        return plan_operation(self._operation, call, {**places, "output": "/output_type"}, self._settings)

    def answer(self, work: PlannedWork) -> Response:
        """Read the elements, do the work, and reply."""
        arrays = {}
        for each in self._operation.inputs:
            if each.name in self._tensors:
                tensor, stored = self._tensors[each.name], work.operands[each.name]
                dense = self._dense and each.packable and not tensor.in_values
                arrays[each.name] = read_elements(
                    tensor, stored.type, stored.dtype, each.name, self._body, self._settings, dense=dense
                )
        with pointers_for_sides(**{each.side or each.name: f"/{each.name}" for each in self._operation.inputs}):
            result = work.run(arrays)
        (output,) = result.outputs.values()

        def pieces_of(value: TensorValue) -> list[Buffer]:
            dense = self._dense and not self._in_values and value.type == output.type
            return output_pieces(value.type, value.data, in_values=self._in_values, dense=dense)

        pieces: list[Buffer] = []
        for name, value in result.outputs.items():
            pieces += [(b"," if pieces else b"{") + json_text(name) + b":", *pieces_of(value)]
        pieces.append(b',"report":' + json_text(result.report))
        if self._operation.trace is not None and result.records is not None:
            records = self._operation.trace.records
            pieces.append(b',"trace":{' + json_text(records.name) + b":" + json_text(result.records))
            for name, value in result.stages.items():
                pieces += [b"," + json_text(name) + b":", *pieces_of(value)]
            pieces.append(b"}")
        return BuffersResponse([*pieces, b"}"], MEDIA_TYPE)


def _handler(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    model = request_model(operation)

    async def call_operation(request: Request) -> Response:
        running = require_ready(request)
        parsed, body = await receive_json(request, model, running)
        exchange = _Exchange(operation, parsed, body, running.settings)
        work = await running.executor.run_text(exchange.characters, exchange.plan)
        await reserve_memory(request.scope, work.byte_count)
        return await running.executor.run_array(max(len(body), weight(work)), lambda: exchange.answer(work))

    call_operation.__doc__ = operation.summary
    call_operation.__name__ = operation_id(operation)
    return call_operation


for _operation in OPERATIONS.values():
    router.add_api_route(
        f"/v1/{_operation.name}",
        _handler(_operation),
        methods=["POST"],
        tags=[_operation.group],
        **json_operation(
            operation_id(_operation),
            _operation.title,
            request_model(_operation),
            reply_model(_operation),
            example=_operation.example,
        ),
    )
