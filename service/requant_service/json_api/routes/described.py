"""Our own operations in JSON: a route for each description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from math import prod
from typing import Any

import numpy as np
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.description import (
    Array,
    Kind,
    Member,
    NumbersInput,
    NumbersOutput,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Records,
    RecordsInput,
    Report,
    Result,
    TensorInput,
    TensorOutput,
    TensorValue,
    Work,
)
from requant.errors import RequantError, default_pointer, pointers_for_sides
from requant.mlir.types import TensorType
from requant.operations import OPERATIONS
from requant.plan.operands import static_shape
from requant.plan.plan import Packing
from requant_service.http.json_body import MEDIA_TYPE, receive_json
from requant_service.http.json_document import JsonDocument
from requant_service.http.models import RequestModel
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import Buffer, BuffersResponse, json_text, numbers_text, records_text
from requant_service.json_api.schemas.described import operation_id, reply_model, request_model
from requant_service.json_api.schemas.tensors import Tensor
from requant_service.json_api.tensors import output_pieces, read_elements
from requant_service.operations.described import (
    check_factors,
    common_type,
    limits_of,
    plan_operation,
    weight,
)
from requant_service.operations.options import read_value
from requant_service.operations.types import CHARACTERS_PER_SCALE, read_tensor_type
from requant_service.runtime.request_context import reserve_memory
from requant_service.runtime.runtime import require_ready, runtime
from requant_service.runtime.settings import Settings

routers = {work: APIRouter(dependencies=[Depends(no_query)]) for work in Work}
"""By what they work on: texts and modules stand behind the others in the document."""
router = routers[Work.ARRAYS]


@cache
def _options_of_types(operation: Operation) -> tuple[Option, ...]:
    return tuple(each for each in operation.options if each.kind in (Kind.TYPE, Kind.TENSOR_TYPE))


# A plan is kept of a request up to this length, at so many bytes for each byte of it and those that its work takes.
_MAX_KEPT_BYTES = 16 << 10
_PLAN_BYTES_PER_BODY_BYTE = 64
# Of a request with more numbers the key takes longer to make than it is worth.
_MAX_KEPT_NUMBERS = 128


class _Exchange:
    """One request: its tensors, how their elements travel, and the reply in the same form."""

    def __init__(self, operation: Operation, request: RequestModel, body: JsonDocument, settings: Settings) -> None:
        self._operation = operation
        self._request = request
        self._body = body
        self._settings = settings
        self._tensors: dict[str, tuple[str, Tensor]] = {}
        """Each tensor by the name that the operation has for it, with its path in the request."""
        self._names: dict[str, list[str]] = {}
        """The names of the tensors that were sent for each input."""
        for each in operation.tensors:
            self._names[each.name] = self._take(each)
        self._listed = [
            each
            for each in operation.inputs
            if not isinstance(each, TensorInput) and each.name in request.model_fields_set
        ]
        """The inputs of numbers that were sent."""
        self._dense = getattr(request, "packing", None) is Packing.DENSE
        # The first tensor decides the form of the reply; of parts that a request may or may not have, any in values.
        decisive = slice(None) if operation.tensors and operation.tensors[0].optional else slice(1)
        self._in_values = any(tensor.in_values for _, tensor in [*self._tensors.values()][decisive])

    def _take(self, tensor: TensorInput) -> list[str]:
        name, several, sent = tensor.name, tensor.several, self._request.model_fields_set
        if several:
            sources = {f"{several}/{index}": each for index, each in enumerate(getattr(self._request, several))}
            if name in sent:
                sources = {name: getattr(self._request, name)}
            given = {f"{name}_{index}": source for index, source in enumerate(sources.items())}
        else:
            given = {name: (name, getattr(self._request, name))} if name in sent else {}
        self._tensors |= given
        return list(given)

    @property
    def _number_count(self) -> int:
        lists = (getattr(self._request, each.name) for each in self._listed)
        return sum(len(each) if isinstance(each, list) else 1 for each in lists)

    @property
    def characters(self) -> int:
        """How many characters of types the request has, or what takes as long to read."""
        texts = (getattr(self._request, each.name) for each in _options_of_types(self._operation))
        types = sum(len(tensor.type) for _, tensor in self._tensors.values())
        return sum(len(text or "") for text in texts) + types + CHARACTERS_PER_SCALE * self._number_count

    @property
    def key(self) -> Hashable:
        """What tells apart the plans of requests: all but the elements, or where there are none, the body. None for a
        request that is not worth a look.
        """
        if len(self._body) > _MAX_KEPT_BYTES or self._number_count > _MAX_KEPT_NUMBERS:
            return None
        if not self._operation.tensors:
            return self._operation.name, bytes(self._body.body)
        options = [(each.name, value) for each, value in self._sent_options()]
        types = [(name, tensor.type) for name, (_, tensor) in self._tensors.items()]
        numbers = [(name, each.tolist()) for name, each in self._numbers.items()]
        # As text, in which 0.0 and -0.0 differ.
        return self._operation.name, repr((types, options, numbers))

    def is_kept(self, work: PlannedWork) -> bool:
        """Return whether a plan is about as small as its request. A tensor with a dimension of 0 has no elements to
        send, but a plan may hold numbers for its other dimensions.
        """
        shapes = (static_shape(each.type) for each in work.operands.values())
        return all(prod(size or 1 for size in shape) <= 8 * len(self._body) for shape in shapes)

    def byte_count(self, work: PlannedWork) -> int:
        """Return how much memory the work takes: none if types promise more elements than the body has bits, for then
        it is refused when the elements are read.
        """
        promised = max((prod(static_shape(each.type)) for each in work.operands.values()), default=0)
        return work.byte_count if promised <= 8 * len(self._body) else 0

    def plan(self) -> PlannedWork:
        """Plan the call."""
        types: dict[str, TensorType] = {}
        places = {"output": "/output_type"}
        for name, given in self._names.items():
            if given:
                at_types = [f"/{path}/type" for path, _ in map(self._tensors.__getitem__, given)]
                read = [
                    read_tensor_type(self._tensors[each][1].type, self._settings, place)
                    for each, place in zip(given, at_types, strict=True)
                ]
                types[name], places[name] = common_type(read, at_types), at_types[0]
        counts = {name: len(given) for name, given in self._names.items()}
        numbers = self._numbers
        call = OperationCall(types, self._options(), numbers, counts, limits=limits_of(self._settings))
        with self._at_paths():
            return plan_operation(self._operation, call, places, self._settings)

    @cached_property
    def _numbers(self) -> dict[str, Array]:
        """The numbers of each input that was sent. Raise LimitError for too many that are read as they are written."""
        found: dict[str, Array] = {}
        for each in self._listed:
            found |= self._records(each) if isinstance(each, RecordsInput) else self._list(each)
        return found

    def _list(self, given: NumbersInput) -> dict[str, Array]:
        """Return numbers as f64, or as they are written."""
        sent = getattr(self._request, given.name)
        if given.kind is not Kind.NUMBER_OR_TEXT:
            return {given.name: np.array(sent, np.float64, ndmin=1)}
        check_factors(len(sent), given.name, self._settings, f"/{given.name}")
        texts = [self._body.number_text(each, f"{given.name}/{index}") for index, each in enumerate(sent)]
        return {given.name: np.array(texts, object)}

    def _records(self, given: RecordsInput) -> dict[str, Array]:
        """Return the numbers of each member of the records."""
        sent = getattr(self._request, given.name)
        check_factors(len(sent), given.name, self._settings, f"/{given.name}")
        found = {}
        for member in given.members:
            numbers = [getattr(record, member.name) for record in sent]
            if member.numbers.kind is Kind.NUMBER_OR_TEXT:
                paths = (f"{given.name}/{index}/{member.name}" for index in range(len(sent)))
                numbers = [
                    None if each is None else self._body.number_text(each, path)
                    for each, path in zip(numbers, paths, strict=True)
                ]
            found[member.numbers.name] = np.array(numbers, object)
        return found

    def _options(self) -> dict[str, Any]:
        """Return the value of each option, read."""
        read = {each.name: self._option(each, value) for each, value in self._sent_options()}
        return {**self._operation.defaults, **read}

    def _sent_options(self) -> Iterator[tuple[Option, Any]]:
        """Yield the options that were sent, with their values: the text of one that is read as it is written."""
        for each in self._operation.options:
            if each.name in self._request.model_fields_set:
                value = getattr(self._request, each.name)
                yield each, self._body.number_text(value, each.name) if each.kind is Kind.NUMBER_OR_TEXT else value

    def _option(self, option: Option, value: Any) -> Any:
        place = f"/{option.name}"
        with default_pointer(place):
            return read_value(option, value, self._settings, place)

    @contextmanager
    def _at_paths(self) -> Iterator[None]:
        """Point at the tensor of the request that an error about one of several is about, or at the member of a
        record.
        """
        try:
            yield
        except RequantError as error:
            steps = (error.pointer or "").split("/")
            if (name := "_".join(steps[1:3])) in self._tensors and len(steps) > 2:
                error.pointer = "/".join(["", self._tensors[name][0], *steps[3:]])
            elif len(steps) > 2 and (member := self._members.get(steps[1])):
                error.pointer = "/".join(["", member[0], steps[2], member[1]])
            raise

    @property
    def _members(self) -> dict[str, tuple[str, str]]:
        """The list of records, and the member of one, that the numbers of an input were sent in."""
        lists = [each for each in self._listed if isinstance(each, RecordsInput)]
        return {member.numbers.name: (each.name, member.name) for each in lists for member in each.members}

    def planned_answer(self) -> Response:
        """Plan the call and reply: of texts, where all of it is one piece of work."""
        return self.answer(self.plan())

    def answer(self, work: PlannedWork) -> Response:
        """Read the elements, do the work, and reply."""
        arrays = {}
        for each in self._operation.tensors:
            for name in self._names[each.name]:
                (path, tensor), stored = self._tensors[name], work.operands[name]
                dense = self._dense and each.packable and not tensor.in_values
                arrays[name] = read_elements(
                    tensor, stored.type, stored.dtype, path, self._body, self._settings, dense=dense
                )
        named = {each.side or each.name: f"/{each.name}" for each in self._operation.tensors}
        with self._at_paths(), pointers_for_sides(**named):
            result = work.run(arrays)
        return BuffersResponse([b"{", *self._reply(result), b"}"], MEDIA_TYPE)

    def _reply(self, result: Result) -> Iterator[Buffer]:
        """Yield the reply without its braces. Members that follow each other are written as one text."""
        separator = b""
        for members, tensor in self._parts(result):
            if members:
                yield separator + json_text(members)[1:-1]
                separator = b","
            if tensor:
                yield separator
                yield from tensor
                separator = b","
        if self._operation.trace is not None and result.records is not None:
            records = self._operation.trace.records
            yield b',"trace":{' + json_text(records.name) + b":" + json_text(result.records)
            for name, value in result.stages.items():
                yield b"," + json_text(name) + b":"
                yield from self._tensor(value, result)
            yield b"}"

    def _parts(self, result: Result) -> Iterator[tuple[dict[str, Any], list[Buffer]]]:
        """Yield the members up to a tensor or a list of numbers, and that one as pieces; in the end those after it."""
        members: dict[str, Any] = {}
        for part in self._operation.reply:
            match part:
                case TensorOutput() if part.name in result.outputs:
                    yield members, [json_text(part.name) + b":", *self._tensor(result.outputs[part.name], result)]
                    members = {}
                case NumbersOutput() if part.name in result.numbers:
                    yield members, [json_text(part.name) + b":" + _numbers_text(part, result.numbers[part.name])]
                    members = {}
                case Member() if part.repeated and part.name in result.report:
                    yield members, [json_text(part.name) + b":" + records_text(result.report[part.name])]
                    members = {}
                case Member() if part.in_json and part.name in result.report:
                    value = result.report[part.name]
                    members[part.name] = repr(value) if part.kind is Kind.DECIMAL else value
                case NumbersOutput() | Member() if part.empty_if_absent:
                    members[part.name] = []
                case Records() if result.records is not None:
                    yield members, [json_text(part.name) + b":" + records_text(result.records)]
                    members = {}
                case Report():
                    own = {each.name for each in self._operation.members}
                    report = {name: value for name, value in result.report.items() if name not in own}
                    if report or not part.optional:
                        members["report"] = report
        yield members, []

    def _tensor(self, value: TensorValue, result: Result) -> list[Buffer]:
        # Stages are packed if they have the type of the output.
        first = next(iter(result.outputs.values()))
        dense = self._dense and not self._in_values and value.type == first.type
        return output_pieces(value.type, value.data, in_values=self._in_values, dense=dense, text=value.text)


def _numbers_text(part: NumbersOutput, numbers: Array) -> bytes:
    if part.kind is Kind.DECIMAL:
        return json_text([repr(each) for each in numbers.reshape(-1).tolist()])
    return numbers_text(numbers)


def _handler(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    model = request_model(operation)

    async def call_operation(request: Request) -> Response:
        running = runtime(request) if operation.work is Work.TEXTS else require_ready(request)
        parsed, body = await receive_json(request, model, running)
        exchange = _Exchange(operation, parsed, body, running.settings)
        if operation.work is Work.TEXTS:
            return await running.executor.run_text(operation.readings * len(body), exchange.planned_answer)
        if operation.work is Work.MODULES:
            return await running.executor.run_module(exchange.planned_answer)
        key = exchange.key
        work: PlannedWork | None = None if key is None else running.planned.get(key)
        if work is None:
            work = await running.executor.run_text(exchange.characters, exchange.plan)
            if key is not None and exchange.is_kept(work):
                running.planned.put(key, work, _PLAN_BYTES_PER_BODY_BYTE * len(body) + work.byte_count)
        await reserve_memory(request.scope, exchange.byte_count(work))
        if work.characters:
            return await running.executor.run_text(work.characters, lambda: exchange.answer(work))
        cost = weight(work, len(body), running.settings)
        return await running.executor.run_array(cost, lambda: exchange.answer(work))

    call_operation.__doc__ = operation.summary
    call_operation.__name__ = operation_id(operation)
    return call_operation


for _operation in OPERATIONS.values():
    routers[_operation.work].add_api_route(
        f"/v1/{_operation.path or _operation.name}",
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
