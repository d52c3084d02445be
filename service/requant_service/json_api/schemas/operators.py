"""What the route of an operator reads and answers: models made from the operator's description."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, cast

from pydantic import FailFast, Field, create_model

from requant.description import Kind
from requant.operators.description import Attribute, Operand, Operator
from requant_service.http.models import ABSENT, Int32, Int64, ReplyModel, RequestModel, component
from requant_service.json_api.schemas.tensors import OutputTensor, Tensor
from requant_service.runtime.settings import MAX_ENTRIES

_TYPE_ATTRIBUTE = "MLIR text."


def words_of(operator: Operator) -> list[str]:
    """Return system and name in words: onnx, Quantize, Linear. QLinear is one: generators disagree where it ends."""
    name = operator.operation or operator.name
    return [
        *operator.system.split("."),
        *re.findall(r"[A-Z]{0,2}[a-z]+|[A-Z]+(?![a-z])|[0-9]+(?:[A-Z](?![a-z]))?", name),
    ]


def class_name(operator: Operator) -> str:
    """Return the stem of the names of the operator's models: OnnxQuantizeLinear."""
    return "".join(word[:1].upper() + word[1:].lower() for word in words_of(operator))


def operation_id(operator: Operator) -> str:
    """Return the operationId of the operator's route: onnxQuantizeLinear."""
    name = class_name(operator)
    return name[:1].lower() + name[1:]


def _types(operand: Operand, *, versioned: bool) -> str:
    if not versioned:
        return f"Types: {', '.join(operand.types)}."
    first = min(operand.types.values())
    listed = (name if since == first else f"{name} (from {since})" for name, since in operand.types.items())
    return f"Types: {', '.join(listed)}."


def _tensor_field(operand: Operand, operator: Operator) -> Any:
    said = f"{operand.description} {_types(operand, versioned=bool(operator.versions))}"
    return (Tensor, Field(default=ABSENT, description=said) if operand.optional else Field(description=said))


def _kind(attribute: Attribute) -> Any:
    integer = Annotated[Int64, Field(ge=attribute.lowest, le=attribute.highest)]
    match attribute.kind:
        case Kind.BOOLEAN:
            return bool
        case Kind.INTEGER:
            return integer
        case Kind.NUMBER:
            return Annotated[float, Field(allow_inf_nan=False)]
        case Kind.INTEGERS:
            return Annotated[list[integer], FailFast(), Field(max_length=MAX_ENTRIES)]
        case Kind.NUMBERS:
            return Annotated[
                list[Annotated[float, Field(allow_inf_nan=False)]], FailFast(), Field(max_length=MAX_ENTRIES)
            ]
        case Kind.TEXT | Kind.TYPE:
            return str


def _attribute_field(attribute: Attribute, operator: Operator) -> Any:
    said = attribute.description
    if attribute.kind is Kind.TYPE:
        said += f" {_TYPE_ATTRIBUTE}"
    if operator.versions and attribute.since > operator.versions[0]:
        said += f" From opset {attribute.since}."
    if attribute.choices is not None:
        described = component(attribute.choices.name, said)
        kind: Any = Annotated[str, described]
        return (kind, ...) if attribute.required else (kind, attribute.default)
    if attribute.required:
        return (_kind(attribute), Field(description=said))
    default = attribute.default
    value = list(default) if isinstance(default, tuple) else ABSENT if default is None else default
    return (_kind(attribute), Field(default=value, description=said))


@cache
def request_model(operator: Operator) -> type[RequestModel]:
    """Return the model of a request."""
    stem = class_name(operator)
    inputs = create_model(
        f"{stem}Inputs",
        __base__=RequestModel,
        __doc__=f"The operands of {operator.name}.",
        **cast(dict[str, Any], {each.name: _tensor_field(each, operator) for each in operator.inputs}),
    )
    fields: dict[str, Any] = {}
    if operator.versions:
        fields["opset"] = (
            Int32,
            Field(
                ge=0,
                le=2**31 - 1,
                description=f"The version of ONNX's operators: {operator.versions[0]} to {operator.last_version}. This "
                f"operator changed at {', '.join(map(str, operator.versions))}.",
            ),
        )
    choices = operator.implementations
    described = f"{choices.description} Default: {choices.values[0]}."
    fields["implementation"] = (Annotated[str, component(choices.name, described)], choices.values[0])
    fields["inputs"] = (inputs, Field(description="The operands, by their names."))
    attributes = create_model(
        f"{stem}Attributes",
        __base__=RequestModel,
        __doc__=f"The attributes of {operator.name}." if operator.attributes else f"{operator.name} has no attributes.",
        **cast(dict[str, Any], {each.name: _attribute_field(each, operator) for each in operator.attributes}),
    )
    required = any(attribute.required for attribute in operator.attributes)
    described = "The attributes, by their names." if operator.attributes else "Empty: there are no attributes."
    field = Field(description=described) if required else Field(default=ABSENT, description=described)
    fields["attributes"] = (attributes, field)
    return create_model(f"{stem}Request", __base__=RequestModel, __doc__=operator.summary, **fields)


@cache
def reply_model(operator: Operator) -> type[ReplyModel]:
    """Return the model of a reply."""
    stem = class_name(operator)
    versioned = bool(operator.versions)
    results: dict[str, Any] = {
        each.name: (
            OutputTensor,
            Field(description=f"{each.description} {_types(each, versioned=versioned)}"),
        )
        for each in operator.outputs
    }
    outputs = create_model(f"{stem}Outputs", __base__=ReplyModel, __doc__=f"The outputs of {operator.name}.", **results)
    members: dict[str, Any] = {"outputs": (outputs, ...)}
    if operator.stages:
        stages: dict[str, Any] = {
            each.name: (OutputTensor, Field(default=ABSENT, description=each.description)) for each in operator.stages
        }
        trace = create_model(
            f"{stem}Trace", __base__=ReplyModel, __doc__="The intermediate values, as far as there are any.", **stages
        )
        members["trace"] = (trace, Field(default=ABSENT, description="Present if `trace` was requested."))
    return create_model(
        f"{stem}Reply",
        __base__=ReplyModel,
        __doc__=f"The outputs of {operator.full_name}, by name.",
        **members,
    )
