"""Our own operations in JSON: a route for each description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from math import prod
from operator import itemgetter
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
from requant.errors import RequantError, default_pointer
from requant.mlir.types import TensorType
from requant.operations import OPERATIONS
from requant.operations.conversions import CONVERSIONS
from requant.operations.explain import EXPLANATIONS
from requant.plan.operands import element_name, static_shape
from requant.plan.plan import Packing
from requant_service.http.json_body import MEDIA_TYPE, receive_json
from requant_service.http.json_document import JsonDocument
from requant_service.http.models import RequestModel
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import Buffer, BuffersResponse, json_text, numbers_text, plain_text, records_text
from requant_service.json_api.schemas.described import operation_id, reply_model, request_model
from requant_service.json_api.schemas.tensors import Tensor
from requant_service.json_api.tensors import output_pieces, read_elements
from requant_service.operations.conversion_call import plan_bytes
from requant_service.operations.described import (
    cached_plan,
    check_factors,
    common_type,
    limits_of,
    plan_operation,
    weight,
)
from requant_service.operations.options import read_value
from requant_service.operations.types import CHARACTERS_PER_SCALE, read_tensor_type
from requant_service.runtime.request_context import reserve_memory
from requant_service.runtime.runtime import Runtime, require_ready, runtime
from requant_service.runtime.settings import Settings

routers = {work: APIRouter(dependencies=[Depends(no_query)]) for work in Work}
"""By what they work on: texts and modules stand behind the others in the document."""
router = routers[Work.ARRAYS]
router_of_conversions = APIRouter(dependencies=[Depends(no_query)])
"""Conversions, and what explains them: the first in the document."""


# A plan is kept of a request up to this length, at so many bytes for each byte of it and those that its work takes.
_MAX_KEPT_BYTES = 16 << 10
_PLAN_BYTES_PER_BODY_BYTE = 64
# Of a request with more numbers the key takes longer to make than it is worth: of floats, and of integers.
_MAX_KEPT_FLOATS = 128
_MAX_KEPT_INTEGERS = 4096
_TYPES = (Kind.TYPE, Kind.TENSOR_TYPE)
# Of these kinds equal values are the same value. As numbers 0.0 and -0.0 are equal, and texts of them differ.
_TOLD_APART = (*_TYPES, Kind.BOOLEAN, Kind.INTEGER, Kind.TEXT)


class _Route:
    """What all requests of an operation have in common, worked out once."""

    def __init__(self, operation: Operation) -> None:
        self.model = request_model(operation)
        self.types = [each.name for each in operation.options if each.kind in _TYPES]
        self.told_apart = itemgetter(*(each.name for each in operation.options if each.kind in _TOLD_APART))
        self.others = [each for each in operation.options if each.kind not in _TOLD_APART]
        self.numbers = [each for each in operation.inputs if not isinstance(each, TensorInput)]
        whole = all(each.kind is Kind.INTEGER for each in operation.numbers)
        self.max_kept_numbers = _MAX_KEPT_INTEGERS if whole else _MAX_KEPT_FLOATS
        self.reads_as_written = any(each.kind is Kind.NUMBER_OR_TEXT for each in operation.numbers)
        # The first tensor decides the form of the reply; of parts that a request may or may not have, any in values.
        self.any_decides = bool(operation.tensors) and operation.tensors[0].optional
        self.members = frozenset(each.name for each in operation.members)
        listed = () if operation.report is None else operation.report.members
        self.may_have_floats = frozenset(each.name for each in listed if each.kind is Kind.NUMBER or each.members)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A plan, and what it says of all requests that have it. `promised`: the elements of the largest tensor."""

    work: PlannedWork
    promised: int
    byte_count: int
    cost: int
    element: str

    @staticmethod
    def of(work: PlannedWork, settings: Settings) -> _Plan:
        """Return what a plan says."""
        promised = max((each.elements for each in work.operands.values()), default=0)
        byte_count, element = work.byte_count, ""
        if (conversion := work.conversion) is not None:
            # The base64 of a tensor that may be as large as the body.
            byte_count += conversion.output_bytes * 4 // 3
            element = element_name(conversion.plan.output_type.element)
        return _Plan(work, promised, byte_count, weight(work, 0, settings), element)


class _Exchange:
    """One request: its tensors, how their elements travel, and the reply in the same form."""

    def __init__(
        self, operation: Operation, route: _Route, request: RequestModel, body: JsonDocument, running: Runtime
    ) -> None:
        self._operation = operation
        self._route = route
        self._request = request
        self._body = body
        self._settings = running.settings
        self._metrics = running.metrics
        self._tensors: dict[str, tuple[str, Tensor]] = {}
        """Each tensor by the name that the operation has for it, with its path in the request."""
        self._names: dict[str, list[str]] = {}
        """The names of the tensors that were sent for each input."""
        sent = request.model_fields_set
        for each in operation.tensors:
            self._names[each.name] = self._take(each, sent)
        self._listed = [each for each in route.numbers if each.name in sent]
        """The inputs of numbers that were sent."""
        self._dense = getattr(request, "packing", None) is Packing.DENSE
        self._in_values = False
        for _, tensor in self._tensors.values():
            if tensor.in_values:
                self._in_values = True
            if not route.any_decides:
                break

    def _take(self, tensor: TensorInput, sent: Collection[str]) -> list[str]:
        name, several = tensor.name, tensor.several
        if not several:
            if name in sent:
                self._tensors[name] = name, getattr(self._request, name)
            return [name] if name in sent else []
        sources = {f"{several}/{index}": each for index, each in enumerate(getattr(self._request, several))}
        if name in sent:
            sources = {name: getattr(self._request, name)}
        given = {f"{name}_{index}": source for index, source in enumerate(sources.items())}
        self._tensors |= given
        return list(given)

    @property
    def _number_count(self) -> int:
        lists = (getattr(self._request, each.name) for each in self._listed)
        return sum(len(each) if isinstance(each, list) else 1 for each in lists)

    def characters(self) -> int:
        """How many characters of types the request has, or what takes as long to read."""
        texts = (getattr(self._request, name) for name in self._route.types)
        types = sum(len(tensor.type) for _, tensor in self._tensors.values())
        return sum(len(text or "") for text in texts) + types + CHARACTERS_PER_SCALE * self._number_count

    @property
    def key(self) -> Hashable:
        """What tells apart the plans of requests: all but the elements, or where there are none, the body. None for a
        request that is not worth a look.
        """
        if self._listed and self._number_count > self._route.max_kept_numbers:
            return None
        operation, route, options = self._operation, self._route, self._request.__dict__
        if not operation.tensors:
            return (operation.name, bytes(self._body.body)) if len(self._body) <= _MAX_KEPT_BYTES else None
        types = tuple((name, tensor.type) for name, (_, tensor) in self._tensors.items())
        others: list[tuple[str, Any]] = []
        if self._listed and route.reads_as_written:
            others = [(name, each.tolist()) for name, each in self._numbers.items()]
        elif self._listed:
            others = [(each.name, options[each.name]) for each in self._listed]
        for each in route.others:
            if (value := options[each.name]) is not None:
                as_text = each.kind is Kind.NUMBER_OR_TEXT
                others.append((each.name, self._body.number_text(value, each.name) if as_text else value))
        # As text, in which 0.0 and -0.0 differ.
        return operation.name, types, route.told_apart(options), repr(others) if others else ""

    def held_bytes(self, plan: _Plan) -> int | None:
        """Return about how many bytes a plan takes that is kept, None for one that is not.

        A conversion tells. Any other plan has to be about as small as a short request. A tensor with a dimension of 0
        has no elements to send, but a plan may hold numbers for its other dimensions.
        """
        work = plan.work
        if work.conversion is not None:
            return plan_bytes(work.conversion.plan, self.characters())
        if len(self._body) > _MAX_KEPT_BYTES:
            return None
        shapes = (static_shape(each.type) for each in work.operands.values())
        small = all(prod(size or 1 for size in shape) <= 8 * len(self._body) for shape in shapes)
        return _PLAN_BYTES_PER_BODY_BYTE * len(self._body) + work.byte_count if small else None

    def byte_count(self, plan: _Plan) -> int:
        """Return how much memory the work takes: none if types promise more elements than the body has bits, for then
        it is refused when the elements are read.
        """
        return plan.byte_count if plan.promised <= 8 * len(self._body) else 0

    def measured_plan(self) -> _Plan:
        """Plan the call, for all requests that have the plan."""
        return _Plan.of(self.plan(), self._settings)

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
        try:
            return plan_operation(self._operation, call, places, self._settings)
        except RequantError as error:
            self._point(error)
            raise

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
        if any(each.numbers.kind is Kind.NUMBER_OR_TEXT for each in given.members):
            check_factors(len(sent), given.name, self._settings, f"/{given.name}")
        found = {}
        for place, member in enumerate(given.members):
            numbers = [record[place] for record in sent]
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
        sent = [each for each in self._operation.options if each.name in self._request.model_fields_set]
        read = {each.name: self._option(each, getattr(self._request, each.name)) for each in sent}
        return {**self._operation.defaults, **read}

    def _option(self, option: Option, value: Any) -> Any:
        place = f"/{option.name}"
        if option.kind is Kind.NUMBER_OR_TEXT:
            value = self._body.number_text(value, option.name)
        with default_pointer(place):
            return read_value(option, value, self._settings, place)

    def _point(self, error: RequantError) -> None:
        """Point at the tensor of the request that an error about one of several is about, or at the member of a
        record.
        """
        steps = (error.pointer or "").split("/")
        if (name := "_".join(steps[1:3])) in self._tensors and len(steps) > 2:
            error.pointer = "/".join(["", self._tensors[name][0], *steps[3:]])
        elif len(steps) == 3 and (member := self._members.get(steps[1])):
            error.pointer = "/".join(["", member[0], steps[2], member[1]])

    @property
    def _members(self) -> dict[str, tuple[str, str]]:
        """The list of records, and the member of one, that the numbers of an input were sent in."""
        lists = [each for each in self._listed if isinstance(each, RecordsInput)]
        return {member.numbers.name: (each.name, member.name) for each in lists for member in each.members}

    def planned_answer(self) -> Response:
        """Plan the call and reply: of texts, where all of it is one piece of work."""
        return self.answer(self.plan())

    def answer(self, work: PlannedWork, element: str = "") -> Response:
        """Read the elements, do the work, and reply. `element`: that of the output of a conversion, if it is known."""
        operation, arrays = self._operation, {}
        for each in operation.tensors:
            for name in self._names[each.name]:
                (path, tensor), stored = self._tensors[name], work.operands[name]
                # Where there is but one tensor, packing that is asked for is about that.
                dense = self._dense and each.packable and (not tensor.in_values or len(self._tensors) == 1)
                arrays[name] = read_elements(
                    tensor,
                    stored.type,
                    stored.dtype,
                    path,
                    self._body,
                    self._settings,
                    dense=dense,
                    elements=stored.elements,
                )
        try:
            result = work.run(arrays)
        except RequantError as error:
            if error.pointer is None and error.side is not None:
                named = {each.side or each.name: f"/{each.name}" for each in operation.tensors}
                error.pointer = named.get(error.side)
            self._point(error)
            raise
        if operation.converts is not None:
            self._count(result, operation.converts, element)
        return BuffersResponse(self._reply(result), MEDIA_TYPE)

    def pace(self, work: PlannedWork) -> Hashable:
        """Return a kind of work that takes about the same time for a byte of the body."""
        if work.conversion is None or not work.in_pieces or self._in_values:
            return None
        return ("base64", self._dense, *work.conversion.kind)

    def _count(self, result: Result, conversion: str, element: str) -> None:
        report = result.report
        element = element or element_name(result.outputs["output"].type.element)
        saturated = report["saturated_low"] + report["saturated_high"]
        self._metrics.converted(conversion, report["profile"], element, report["elements"], saturated)

    def _reply(self, result: Result) -> list[Buffer]:
        """Return the reply as pieces. Members that follow each other are written as one text."""
        pieces: list[Buffer] = []
        members: dict[str, Any] = {}

        def write(name: str, first: Buffer, *others: Buffer) -> None:
            if members:
                pieces.append((b"," if pieces else b"{") + json_text(members)[1:-1])
                members.clear()
            pieces.append((b"," if pieces else b"{") + _label(name) + first)
            pieces.extend(others)

        for part in self._operation.reply:
            match part:
                case TensorOutput() if part.name in result.outputs:
                    write(part.name, *self._tensor(result.outputs[part.name], result))
                case NumbersOutput() if part.name in result.numbers:
                    write(part.name, _numbers_text(part, result.numbers[part.name]))
                case Member() if part.repeated and part.name in (result.members or result.report):
                    write(part.name, records_text((result.members or result.report)[part.name]))
                case Member() if part.in_json and (part.name in result.members or part.name in result.report):
                    value = result.members[part.name] if part.name in result.members else result.report[part.name]
                    members[part.name] = repr(value) if part.kind is Kind.DECIMAL else value
                case NumbersOutput() | Member() if part.empty_if_absent:
                    members[part.name] = []
                case Records() if result.records is not None:
                    write(part.name, records_text(result.records))
                case Report():
                    report, own = result.report, self._route.members
                    if not own.isdisjoint(report):
                        own -= result.members.keys()
                        report = {name: value for name, value in report.items() if name not in own}
                    if not report and part.optional:
                        continue
                    if self._route.may_have_floats.isdisjoint(report):
                        write("report", plain_text(report))
                    else:
                        members["report"] = report
        if self._operation.trace is not None and result.records is not None:
            records = self._operation.trace.records
            write("trace", b"{" + _label(records.name), json_text(result.records))
            for name, value in result.stages.items():
                pieces += [b"," + _label(name), *self._tensor(value, result)]
            pieces.append(b"}")
        if members or not pieces:
            last = json_text(members)
            return [*pieces, b"," + last[1:]] if pieces else [last]
        # The end of the last member: text that is short, unless it is a list.
        *first, end = pieces
        return [*first, bytes(end) + b"}"]

    def _tensor(self, value: TensorValue, result: Result) -> list[Buffer]:
        # Stages are packed if they have the type of the output.
        first = next(iter(result.outputs.values()))
        dense = self._dense and not self._in_values and value.type == first.type
        return output_pieces(value.type, value.data, in_values=self._in_values, dense=dense, text=value.text)


@cache
def _label(name: str) -> bytes:
    """Return the name of a member, and the colon behind it."""
    return json_text(name) + b":"


def _numbers_text(part: NumbersOutput, numbers: Array) -> bytes:
    if part.kind is Kind.DECIMAL:
        return json_text([repr(each) for each in numbers.reshape(-1).tolist()])
    return numbers_text(numbers)


async def answer_operation(request: Request, operation: Operation, route: _Route) -> Response:
    """Receive, plan, work and reply."""
    running = runtime(request) if operation.work is Work.TEXTS else require_ready(request)
    executor = running.executor
    parsed, body = await receive_json(request, route.model, running)
    exchange = _Exchange(operation, route, parsed, body, running)
    if operation.work is Work.TEXTS:
        return await executor.run_text(operation.readings * len(body), exchange.planned_answer)
    if operation.work is Work.MODULES:
        return await executor.run_module(exchange.planned_answer)
    plan = await cached_plan(exchange.key, running, exchange.measured_plan, exchange.characters, exchange.held_bytes)
    work = plan.work
    await reserve_memory(request.scope, exchange.byte_count(plan))
    answer = partial(exchange.answer, work, plan.element)
    if work.characters:
        return await executor.run_text(work.characters, answer)
    return await executor.run_array(max(plan.cost, len(body)), answer, exchange.pace(work))


def _handler(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    route = _Route(operation)

    async def call_operation(request: Request) -> Response:
        return await answer_operation(request, operation, route)

    call_operation.__doc__ = operation.route_summary or operation.summary
    call_operation.__name__ = operation_id(operation)
    return call_operation


for _operation in (*CONVERSIONS.values(), *EXPLANATIONS.values(), *OPERATIONS.values()):
    _router = router_of_conversions if _operation.converts else routers[_operation.work]
    _router.add_api_route(
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
