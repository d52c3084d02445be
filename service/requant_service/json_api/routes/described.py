"""Our own operations in JSON: a route for each description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from operator import itemgetter
from typing import Any, NamedTuple

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.description import (
    Array,
    Kind,
    Member,
    NumbersOutput,
    Operation,
    PlannedWork,
    Records,
    Report,
    Result,
    TensorOutput,
    TensorValue,
    Work,
)
from requant.errors import Base64Error, RequantError
from requant.operations import OPERATIONS
from requant.operations.conversions import CONVERSIONS
from requant.operations.explain import EXPLANATIONS
from requant.plan.operands import element_name, static_shape
from requant.plan.plan import Packing
from requant_service.http.json_body import (
    MEDIA_TYPE,
    parse_document,
    read_json,
    receive_document,
    reserve_for_objects,
    tokens_of,
)
from requant_service.http.json_document import JsonDocument
from requant_service.http.models import RequestModel
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import Buffer, BuffersResponse, json_text, numbers_text, plain_text, records_text
from requant_service.json_api.calls import read_calls
from requant_service.json_api.schemas.described import operation_id, reply_model, request_model
from requant_service.json_api.sent_call import SentCall
from requant_service.json_api.tensors import output_data, output_pieces, read_elements
from requant_service.operations.conversion_call import plan_bytes
from requant_service.operations.described import (
    cached_plan,
    decimal_texts,
    plan_operation,
    weight,
)
from requant_service.runtime.executor import Executor
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
        told_apart = [each.name for each in operation.options if each.kind in _TOLD_APART]
        self.told_apart: Callable[[Any], Hashable] = itemgetter(*told_apart) if told_apart else lambda _: ()
        self.others = [each for each in operation.options if each.kind not in _TOLD_APART]
        whole = all(each.kind is Kind.INTEGER for each in operation.numbers)
        self.max_kept_numbers = _MAX_KEPT_INTEGERS if whole else _MAX_KEPT_FLOATS
        self.reads_as_written = any(each.kind is Kind.NUMBER_OR_TEXT for each in operation.numbers)
        self._name = operation.name
        self._reads_data = operation.work is Work.ARRAYS and bool(operation.tensors) and operation.calls is None
        # The first tensor decides the form of the reply; of parts that a request may or may not have, any in values.
        self.any_decides = bool(operation.tensors) and operation.tensors[0].optional
        self.members = frozenset(each.name for each in operation.members)
        listed = () if operation.report is None else operation.report.members
        self.may_have_floats = frozenset(each.name for each in listed if each.kind is Kind.NUMBER or each.members)

    def key_of(self, body: JsonDocument) -> Hashable:
        """What tells apart requests that differ in more than their data. None for one that is not worth a look."""
        outline = body.outline
        worth = self._reads_data and body.left_out and len(outline) <= _MAX_KEPT_BYTES
        return (self._name, bytes(outline)) if worth else None


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
    """One request: its tensors, how their elements travel, and the reply in the same form.

    `is_new`: nothing is known of such requests before it.
    """

    is_new = False

    def __init__(
        self, operation: Operation, route: _Route, request: RequestModel, body: JsonDocument, running: Runtime
    ) -> None:
        self._operation = operation
        self._route = route
        self._request = request
        self._body = body
        self._settings = running.settings
        self._metrics = running.metrics
        self._sent = SentCall(operation, request, body, running.settings)
        self._dense = getattr(request, "packing", None) is Packing.DENSE
        self._in_values = False
        self._replied: tuple[Mapping[str, Any], Buffer, Buffer] | None = None
        for _, tensor in self._sent.tensors.values():
            if tensor.in_values:
                self._in_values = True
            if not route.any_decides:
                break

    def characters(self) -> int:
        """How many characters the request has that take as long to read as those of types."""
        return len(self._body.text) if self._operation.calls is not None else self._sent.characters()

    @property
    def key(self) -> Hashable:
        """What tells apart the plans of requests: all but the elements, or where there are none, the body. None for a
        request that is not worth a look.
        """
        sent = self._sent
        if self._operation.calls is not None or (sent.listed and sent.number_count > self._route.max_kept_numbers):
            return None
        operation, route, options = self._operation, self._route, self._request.__dict__
        if not operation.tensors:
            return (operation.name, bytes(self._body.body)) if len(self._body) <= _MAX_KEPT_BYTES else None
        types = tuple((name, tensor.type) for name, (_, tensor) in sent.tensors.items())
        others: list[tuple[str, Any]] = []
        if sent.listed and route.reads_as_written:
            others = [(name, each.tolist()) for name, each in sent.numbers.items()]
        elif sent.listed:
            others = [(each.name, options[each.name]) for each in sent.listed]
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
            return plan_bytes(work.conversion.plan, self._sent.characters())
        if len(self._body) > _MAX_KEPT_BYTES:
            return None
        shapes = (static_shape(each.type) for each in work.operands.values())
        small = all(prod(size or 1 for size in shape) <= 8 * len(self._body) for shape in shapes)
        return _PLAN_BYTES_PER_BODY_BYTE * len(self._body) + work.byte_count if small else None

    def measured_plan(self) -> _Plan:
        """Plan the call, for all requests that have the plan."""
        self.is_new = True
        return _Plan.of(self.plan(), self._settings)

    def plan(self) -> PlannedWork:
        """Plan the call."""
        try:
            call, places = self._sent.call()
            if self._operation.calls is not None:
                call = replace(call, calls=read_calls(self._operation.calls, self._request, self._body, self._settings))
            return plan_operation(self._operation, call, places, self._settings)
        except RequantError as error:
            self._sent.complete(error)
            raise

    def of_outline(self, running: Runtime) -> _Exchange | None:
        """Return the exchange of any request with the same outline; None if data are not all that this leaves out."""
        if len(self._sent.tensors) != self._body.left_out:
            return None
        outline = JsonDocument(self._body.outline)
        request = read_json(outline.body, self._route.model, self._settings)
        made = _Exchange(self._operation, self._route, request, outline, running)
        # Of repeated members only the last is read.
        are_read = all(self._body.data(each.data) is not each.data for _, each in made._sent.tensors.values())
        return made if are_read else None

    def planned_answer(self) -> Response:
        """Plan the call and reply: of texts, where all of it is one piece of work."""
        return self.answer(self.plan(), self._body)

    def answer(self, work: PlannedWork, body: JsonDocument, element: str = "") -> Response:
        """Read the elements, do the work, and reply. `element`: that of the output of a conversion, if it is known.

        `body`: of this request, or of another one with the same outline.
        """
        operation, arrays = self._operation, {}
        for each in operation.tensors:
            for name in self._sent.names[each.name]:
                (path, tensor), stored = self._sent.tensors[name], work.operands[name]
                # Where there is but one tensor, packing that is asked for is about that.
                dense = self._dense and each.packable and (not tensor.in_values or len(self._sent.tensors) == 1)
                arrays[name] = read_elements(
                    tensor,
                    stored.type,
                    stored.dtype,
                    path,
                    body,
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
            self._sent.complete(error)
            raise
        if operation.converts is not None:
            self._count(result, operation.converts, element)
        return BuffersResponse(self._reply_again(result) if work.in_pieces else self._reply(result), MEDIA_TYPE)

    def _reply_again(self, result: Result) -> list[Buffer]:
        """Return the reply of a conversion that is nothing else. All but the elements is that of the request before it,
        unless the report is another one.
        """
        if self._in_values:
            return self._reply(result)
        output = result.outputs["output"]
        known = self._replied
        if known is None or known[0] != result.report:
            head, _, *tail = self._reply(result)
            known = self._replied = result.report, head, b"".join(tail)
        return [known[1], output_data(output.type, output.data, dense=self._dense), known[2]]

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
                    listed = (result.members or result.report)[part.name]
                    write(part.name, records_text(decimal_texts(part, listed)))
                case Member() if part.in_json and (part.name in result.members or part.name in result.report):
                    value = result.members[part.name] if part.name in result.members else result.report[part.name]
                    members[part.name] = decimal_texts(part, value)
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
        trace = self._operation.trace
        if trace is not None and (records := trace.records) is not None and result.records is not None:
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


class _Meaning(NamedTuple):
    """What all requests with an outline ask for: one of them, its plan, and `tokens_of` the outline."""

    exchange: _Exchange
    plan: _Plan
    weight: int

    async def answer(self, request: Request, body: JsonDocument, executor: Executor) -> Response:
        """Do the work on the data of a body, and reply."""
        plan, work = self.plan, self.plan.work
        if plan.promised <= 8 * len(body):
            # Else types promise more elements than the body has bits, and it is refused when they are read.
            await reserve_memory(request.scope, plan.byte_count)
        answer = partial(self.exchange.answer, work, body, plan.element)
        if work.characters:
            return await executor.run_text(work.characters, answer)
        return await executor.run_array(max(plan.cost, len(body)), answer, self.exchange.pace(work))


async def answer_operation(request: Request, operation: Operation, route: _Route) -> Response:
    """Receive, plan, work and reply. What a request asks for apart from its data is worked out once and kept."""
    running = runtime(request) if operation.work is Work.TEXTS else require_ready(request)
    executor, max_tokens = running.executor, running.settings.max_json_tokens
    body = await receive_document(request, running)
    key = route.key_of(body)
    known: _Meaning | None = None if key is None else running.decoded.get(key)
    if known is not None:
        await reserve_for_objects(request.scope, body.body, known.weight, max_tokens)
        try:
            return await known.answer(request, body, executor)
        except Base64Error:
            pass  # nothing was done yet, and the body may not even be JSON: what is wrong with it is found below
    parsed = await parse_document(request, body, route.model, running)
    exchange = _Exchange(operation, route, parsed, body, running)
    if operation.work is Work.TEXTS:
        return await executor.run_text(operation.readings * len(body), exchange.planned_answer)
    if operation.work is Work.MODULES:
        return await executor.run_module(exchange.planned_answer)
    plan = await cached_plan(exchange.key, running, exchange.measured_plan, exchange.characters, exchange.held_bytes)
    response = await _Meaning(exchange, plan, 0).answer(request, body, executor)
    if key is not None and not exchange.is_new and (kept := exchange.of_outline(running)) is not None:
        held = _PLAN_BYTES_PER_BODY_BYTE * len(body.outline) + (exchange.held_bytes(plan) or 0)
        running.decoded.put(key, _Meaning(kept, plan, tokens_of(body.outline)), held)
    return response


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
