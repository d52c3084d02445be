"""What the routes of our own operations read and answer: models made from their descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, FailFast, Field, create_model, model_validator
from pydantic_core import PydanticCustomError

from requant.description import (
    CallsInput,
    Input,
    Kind,
    Member,
    NumbersInput,
    NumbersOutput,
    OneOf,
    Operation,
    Part,
    RecordMember,
    Records,
    RecordsInput,
    Report,
    TensorOutput,
    Trace,
    exactly_one,
)
from requant_service.http.models import (
    ABSENT,
    Int32,
    Int64,
    NumberOrText,
    Numbers,
    ReplyModel,
    RequestModel,
)
from requant_service.json_api.schemas.tensors import OutputTensor, Tensor, Values
from requant_service.operations.calls import MAX_CALLS, call_model
from requant_service.operations.options import group_reply_model, option_field

MAX_TENSORS = 256
"""In the place of an input that takes several."""


def stem(operation: Operation) -> str:
    """Return the stem of the names of an operation's models: Conv2d."""
    return "".join(word.capitalize() for word in operation.name.split("_"))


def operation_id(operation: Operation) -> str:
    """Return the operationId of an operation's route: conv2d."""
    name = stem(operation)
    return name[:1].lower() + name[1:]


_request_models: dict[str, type[RequestModel]] = {}


def _made_once(title: str, description: str, fields: dict[str, Any], forms: dict[str, Any]) -> type[RequestModel]:
    """Return the model of that title, of requests or of records: several requests may have it."""
    if title not in _request_models:
        made = create_model(title, __base__=RequestModel, __doc__=description, __validators__=forms, **fields)
        _request_models[title] = made
    return _request_models[title]


def _input_fields(given: Input) -> dict[str, Any]:
    description = given.description or None
    if isinstance(given, RecordsInput):
        kind: Any = records_kind(given)
        return {given.name: (kind, Field(default=ABSENT, max_length=given.max_length, description=description))}
    default: Any = ABSENT if given.optional else ...
    if isinstance(given, CallsInput):
        call: Any = call_model(observed=given.observed)
        calls = Field(default=default, min_length=1, max_length=MAX_CALLS, description=description)
        return {given.name: (Annotated[list[call], FailFast()], calls)}
    if isinstance(given, NumbersInput):
        examples = list(given.examples) or None
        if given.kind is Kind.NUMBER_OR_TEXT:
            texts = Field(default=default, description=description, examples=examples)
            return {given.name: (Annotated[list[NumberOrText], FailFast()], texts)}
        if given.single:
            number = Field(default=default, description=description, examples=examples, allow_inf_nan=False)
            return {given.name: (float, number)}
        return {given.name: (Numbers, Field(default=default, description=description, examples=examples, min_length=1))}
    if not given.several:
        return {given.name: (Tensor, Field(default=default, description=description))}
    either = f"Give either {given.name} or {given.several}."
    several: Any = Field(
        default=[], min_length=1, max_length=MAX_TENSORS, description=given.several_description or None
    )
    return {
        given.name: (Tensor, Field(default=ABSENT, description=f"One tensor. {either}")),
        given.several: (Annotated[list[Tensor], FailFast()], several),
    }


def records_kind(given: RecordsInput) -> Any:
    """Return the type of the records of a request. Each becomes its numbers in the order of the members: there may be
    very many, and a model is slow to free.
    """
    fields: dict[str, Any] = {each.name: _record_field(each) for each in given.members}
    record: Any = _made_once(given.title, given.record_description, fields, {})

    def numbers(record: Any) -> tuple[Any, ...]:
        return tuple(getattr(record, name) for name in fields)

    return Annotated[list[Annotated[record, AfterValidator(numbers)]], FailFast()]


def _record_field(member: RecordMember) -> Any:
    default: Any = ABSENT if member.optional else ...
    examples = list(member.examples) or None
    kind: Any = NumberOrText if member.numbers.kind is Kind.NUMBER_OR_TEXT else float
    if member.numbers.kind is Kind.INTEGER:
        integer: Any = Int32 if member.bits == 32 else Int64
        kind = Annotated[integer, Field(ge=-member.highest, le=member.highest)]
    return (kind, Field(default=default, description=member.description or None, examples=examples))


def _validators(operation: Operation) -> dict[str, Any]:
    """Return the validators of what several members of a request have to be together."""
    several = [each for each in operation.tensors if each.several]
    one_of = [OneOf(names=(each.name, each.several), code=f"{each.name}_form") for each in several]
    one_of += operation.one_of

    def check(request: RequestModel) -> RequestModel:
        for each in one_of:
            if len(request.model_fields_set.intersection(each.names)) != 1:
                raise PydanticCustomError(each.code, exactly_one(each.names))
        return request

    return {"together": model_validator(mode="after")(check)} if one_of else {}


def _request_title(operation: Operation) -> str:
    return operation.request_title or f"{stem(operation)}Request"


def request_fields(operation: Operation) -> dict[str, Any]:
    """Return the fields of the model of a request: inputs, then options, then records that are in no other's place."""
    instead = {name for each in operation.one_of for name in each.names}
    last = [each for each in operation.record_inputs if each.name not in instead]
    fields: dict[str, Any] = {}
    for each in operation.inputs:
        fields |= {} if each in last else _input_fields(each)
    fields |= {each.name: option_field(each) for each in operation.options}
    for records in last:
        fields |= _input_fields(records)
    return fields


def arguments_model(operation: Operation) -> type[RequestModel]:
    """Return the model of what a request says of a call of which the arithmetic is not known: the options that choose
    that may be absent.
    """
    options = tuple(
        replace(each, optional=True) if each.chooses is not None and each.required else each
        for each in operation.options
    )
    title = f"{stem(operation)}Arguments"
    fields = request_fields(replace(operation, options=options))
    return _made_once(title, operation.request, fields, _validators(operation))


def request_model(operation: Operation) -> type[RequestModel]:
    """Return the model of a request."""
    return _made_once(_request_title(operation), operation.request, request_fields(operation), _validators(operation))


def _described(description: str, *, optional: bool) -> Any:
    """Return the field of a member of a reply."""
    default: Any = ABSENT if optional else ...
    return Field(default=default, description=description or None)


_MEMBER_KINDS: Mapping[Kind, Any] = {
    Kind.BOOLEAN: bool,
    Kind.INTEGER: Int64,
    Kind.NUMBER: float,
    Kind.INTEGERS: list[Int64],
    Kind.NUMBERS: list[float],
    Kind.TEXT: str,
    Kind.TEXTS: list[str],
    Kind.TYPE: str,
    Kind.EXACT_NUMBER: str,
    Kind.DECIMAL: str,
    Kind.ELEMENTS: Values,
}


@cache
def _group_model(title: str, description: str, members: tuple[Member, ...]) -> type[ReplyModel]:
    """Return the model of a group, or of one of a list of groups, which several replies may have."""
    return create_model(title, __base__=ReplyModel, __doc__=description, **_fields(members))


def _member_field(member: Member) -> Any:
    kind: Any = _MEMBER_KINDS[member.kind] if member.group is None else group_reply_model(member.group)
    if member.members:
        kind = _group_model(member.title, member.group_description, member.members)
    if kind is Int64 and member.bits == 32:
        kind = Int32
    if member.repeated:
        kind = list[kind]
    if member.choices is not None and member.choices.enumeration is not None:
        choice: Any = member.choices.enumeration
        kind = list[choice] if member.kind is Kind.TEXTS else choice
    default: Any = ABSENT if member.optional else ...
    examples = list(member.examples) or None
    return (kind, Field(default=default, description=member.description or None, examples=examples))


def part_fields(part: Part) -> dict[str, Any]:
    """Return the field of a part of a reply; none for one that is not in JSON."""
    match part:
        case TensorOutput():
            return {part.name: (OutputTensor, _described(part.description, optional=part.optional))}
        case NumbersOutput():
            kind: Any = Int32 if part.bits == 32 else _MEMBER_KINDS[part.kind]
            return {part.name: (list[kind], _described(part.description, optional=part.optional))}
        case Member():
            return {part.name: _member_field(part)} if part.in_json else {}
        case Records():
            return {part.name: _records_field(part)}
        case Report():
            model = report_model(part)
            return {"report": (model, _described("", optional=part.optional))}


def _fields(parts: Iterable[Part]) -> dict[str, Any]:
    return {name: field for part in parts for name, field in part_fields(part).items()}


@cache
def report_model(report: Report) -> type[ReplyModel]:
    """Return the model of a report, or of a record."""
    return create_model(report.title, __base__=ReplyModel, __doc__=report.description, **_fields(report.members))


def _records_field(records: Records) -> Any:
    record: Any = report_model(records.record)
    return (list[record], _described(records.description, optional=records.optional))


@cache
def _trace_model(trace: Trace) -> type[ReplyModel]:
    records = {} if trace.records is None else {trace.records.name: _records_field(trace.records)}
    fields: dict[str, Any] = {**records, **_fields(trace.stages)}
    return create_model(trace.title, __base__=ReplyModel, __doc__=trace.description, **fields)


@cache
def _reply_model(title: str, description: str, parts: tuple[Part, ...], trace: Trace | None) -> type[ReplyModel]:
    fields = _fields(parts)
    if trace is not None:
        fields["trace"] = (_trace_model(trace), Field(default=ABSENT, description="Present if `trace` was requested."))
    return create_model(title, __base__=ReplyModel, __doc__=description, **fields)


def reply_model(operation: Operation) -> type[ReplyModel]:
    """Return the model of a reply."""
    return _reply_model(operation.reply_title, operation.reply_description, operation.reply, operation.trace)
