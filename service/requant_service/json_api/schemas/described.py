"""What the routes of our own operations read and answer: models made from their descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import FailFast, Field, create_model

from requant.description import Kind, Member, Operation, Option, Report, TensorInput, TensorOutput, Trace
from requant_service.http.models import ABSENT, Int32, Int64, ReplyModel, RequestModel, component
from requant_service.json_api.schemas import conversions
from requant_service.json_api.schemas.comparison import ErrorMeasures
from requant_service.json_api.schemas.tensors import OutputTensor, Tensor
from requant_service.runtime.settings import MAX_ENTRIES

_BITS_32 = range(-(2**31), 2**31)

# Parts of replies that other operations have too.
_SHARED: Mapping[str, type[ReplyModel]] = {
    each.__name__: each for each in (conversions.Report, conversions.UsedMultiplier, ErrorMeasures)
}


def stem(operation: Operation) -> str:
    """Return the stem of the names of an operation's models: Conv2d."""
    return "".join(word.capitalize() for word in operation.name.split("_"))


def operation_id(operation: Operation) -> str:
    """Return the operationId of an operation's route: conv2d."""
    name = stem(operation)
    return name[:1].lower() + name[1:]


def _integer(option: Option) -> Any:
    bounds = Field(ge=option.lowest, le=option.highest)
    in_32_bits = option.lowest in _BITS_32 and option.highest in _BITS_32
    return Annotated[Int32, bounds] if in_32_bits else Annotated[Int64, bounds]


def _kind(option: Option) -> Any:
    integer: Any = _integer(option)
    size = Field(min_length=option.length, max_length=option.length or MAX_ENTRIES)
    number: Any = Annotated[float, Field(allow_inf_nan=False)]
    match option.kind:
        case Kind.BOOLEAN:
            return bool
        case Kind.INTEGER:
            return integer
        case Kind.NUMBER:
            return number
        case Kind.INTEGERS:
            return Annotated[list[integer], FailFast(), size]
        case Kind.NUMBERS:
            return Annotated[list[number], FailFast(), size]
        case Kind.TEXT | Kind.TYPE:
            return str


def _option_field(option: Option) -> Any:
    default: Any = ... if option.required else ABSENT if option.default is None else option.default
    description = option.description or None
    if (choices := option.choices) is None:
        examples: list[Any] | None = list(option.examples) or None
        return (_kind(option), Field(default=default, description=description, examples=examples))
    if choices.enumeration is not None:
        return (choices.enumeration, Field(default=default, strict=False, description=description))
    said = option.description or f"Default: {option.default}."
    return (Annotated[str, component(choices.name, said)], default)


def _input_field(tensor: TensorInput) -> Any:
    return (Tensor, Field(default=ABSENT if tensor.optional else ..., description=tensor.description))


@cache
def request_model(operation: Operation) -> type[RequestModel]:
    """Return the model of a request."""
    fields: dict[str, Any] = {each.name: _input_field(each) for each in operation.inputs}
    fields |= {each.name: _option_field(each) for each in operation.options}
    return create_model(f"{stem(operation)}Request", __base__=RequestModel, __doc__=operation.request, **fields)


def _described(description: str, *, optional: bool) -> Any:
    """Return the field of a member of a reply."""
    default: Any = ABSENT if optional else ...
    return Field(default=default, description=description or None)


_MEMBER_KINDS: Mapping[Kind, Any] = {
    Kind.BOOLEAN: bool,
    Kind.INTEGER: Int64,
    Kind.NUMBER: float,
    Kind.TEXT: str,
    Kind.TYPE: str,
}


def _member_field(member: Member) -> Any:
    kind = _SHARED[member.title] if member.title else _MEMBER_KINDS[member.kind]
    if member.choices is not None and member.choices.enumeration is not None:
        kind = member.choices.enumeration
    return (kind, _described(member.description, optional=member.optional))


def _output_fields(outputs: Iterable[TensorOutput]) -> dict[str, Any]:
    return {each.name: (OutputTensor, _described(each.description, optional=each.optional)) for each in outputs}


@cache
def _report_model(title: str, description: str, members: tuple[Member, ...]) -> type[ReplyModel]:
    if title in _SHARED:
        return _SHARED[title]
    fields: dict[str, Any] = {each.name: _member_field(each) for each in members}
    return create_model(title, __base__=ReplyModel, __doc__=description, **fields)


@cache
def _trace_model(trace: Trace) -> type[ReplyModel]:
    records = trace.records
    record = _report_model(records.title, "", records.members)
    fields: dict[str, Any] = {
        records.name: (list[record], Field(description=records.description)),  # type: ignore[valid-type]
        **_output_fields(trace.stages),
    }
    return create_model(trace.title, __base__=ReplyModel, __doc__=trace.description, **fields)


@cache
def _reply_model(
    title: str, outputs: tuple[TensorOutput, ...], report: Report, trace: Trace | None
) -> type[ReplyModel]:
    fields: dict[str, Any] = {each.name: (OutputTensor, ...) for each in outputs}
    fields["report"] = (_report_model(report.title, report.description, report.members), ...)
    said = "The output and a report."
    if trace is not None:
        said = "The output, a report, and the trace if requested."
        fields["trace"] = (_trace_model(trace), Field(default=ABSENT, description="Present if `trace` was requested."))
    return create_model(title, __base__=ReplyModel, __doc__=said, **fields)


def reply_model(operation: Operation) -> type[ReplyModel]:
    """Return the model of a reply."""
    return _reply_model(operation.reply, operation.outputs, operation.report, operation.trace)
