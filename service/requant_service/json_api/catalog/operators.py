"""Other systems' operators: what each takes, gives and does."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from requant.errors import UnknownNameError
from requant.operators.description import Attribute, Operand, Operator
from requant.operators.registry import OPERATORS, operator_named
from requant_service.http.models import ABSENT, Int32, ReplyModel
from requant_service.http.openapi_operation import static_operation
from requant_service.http.problems import error_response
from requant_service.http.query import no_query
from requant_service.http.responses import static_json
from requant_service.json_api.catalog.conformance import Conformance, conformance_of

router = APIRouter(tags=["catalogs"], dependencies=[Depends(no_query)])


class TypeSince(ReplyModel):
    """An element type, and the first version of the system that has it."""

    type: str
    since: Int32 = Field(default=ABSENT, description="Absent for systems without versions.")


class OperatorOperand(ReplyModel):
    """An input or output tensor of an operator."""

    name: str
    description: str
    optional: bool
    types: list[TypeSince] = Field(description="quantized: any !quant.uniform type.")


class OperatorAttribute(ReplyModel):
    """An attribute of an operator."""

    name: str
    kind: str = Field(description="boolean, integer, number, text, integers, numbers or type.")
    description: str
    required: bool
    default: str = Field(default=ABSENT, description="As JSON text.")
    choices: list[str] = Field(default=ABSENT, description="The allowed values, if restricted.")
    since: Int32 = Field(default=ABSENT, description="The first version of the system that has it.")


class OperatorPage(ReplyModel):
    """An operator: its path, operands, attributes and versions."""

    name: str
    system: str
    operator: str
    summary: str
    source: str
    path: str = Field(description="The path of its JSON route.")
    model: str = Field(description="Its name under /v2/models.")
    versions: list[Int32] = Field(description="The versions in which it changed; empty for systems without versions.")
    implementations: list[str] = Field(description="The available implementations, the default first.")
    inputs: list[OperatorOperand]
    outputs: list[OperatorOperand]
    attributes: list[OperatorAttribute]
    stages: list[OperatorOperand] = Field(
        default=ABSENT, description="What the attribute trace adds to a reply. Absent if it has no such attribute."
    )
    deviations: list[str] = Field(description="Deliberate differences from the system or its specification.")
    conformance: dict[str, Conformance] = Field(
        default=ABSENT, description="What was compared with the system. Absent from the list of operators."
    )


class OperatorList(ReplyModel):
    """All operators."""

    operators: list[OperatorPage]


def route_path(operator: Operator) -> str:
    """Return the path of the operator's JSON route."""
    return f"/v1/{operator.system}/{operator.name}"


def operator_page(operator: Operator) -> OperatorPage:
    """Return the page of an operator."""
    versioned = bool(operator.versions)
    said: dict[str, Any] = {}
    if operator.stages:
        said["stages"] = [_operand(each, versioned=versioned) for each in operator.stages]
    return OperatorPage(
        name=operator.full_name,
        system=operator.system,
        operator=operator.name,
        summary=operator.summary,
        source=operator.source,
        path=route_path(operator),
        model=operator.full_name,
        versions=list(operator.versions),
        implementations=list(operator.implementations.values),
        inputs=[_operand(each, versioned=versioned) for each in operator.inputs],
        outputs=[_operand(each, versioned=versioned) for each in operator.outputs],
        attributes=[_attribute(each, versioned=versioned) for each in operator.attributes],
        deviations=list(operator.deviations),
        **said,
    )


def _operand(operand: Operand, *, versioned: bool) -> OperatorOperand:
    types = [
        TypeSince(type=name, since=since) if versioned else TypeSince(type=name)
        for name, since in operand.types.items()
    ]
    return OperatorOperand(name=operand.name, description=operand.description, optional=operand.optional, types=types)


def _attribute(attribute: Attribute, *, versioned: bool) -> OperatorAttribute:
    said: dict[str, Any] = {}
    if attribute.default is not None:
        said["default"] = json.dumps(attribute.default)
    if attribute.choices is not None:
        said["choices"] = list(attribute.choices.values)
    if versioned:
        said["since"] = attribute.since
    return OperatorAttribute(
        name=attribute.name,
        kind=attribute.kind,
        description=attribute.description,
        required=attribute.required,
        **said,
    )


def _conforming_page(operator: Operator) -> OperatorPage:
    return operator_page(operator).model_copy(update={"conformance": conformance_of("operator", operator.full_name)})


_PAGES = {name: static_json(partial(_conforming_page, operator)) for name, operator in OPERATORS.items()}
_LIST = static_json(lambda: OperatorList(operators=[operator_page(operator) for operator in OPERATORS.values()]))


@router.get("/v1/operators", **static_operation("listOperators", "List operators", OperatorList, excerpt="operators"))
async def list_operators(request: Request) -> Response:
    """List the operators of other systems, with operands, attributes and versions."""
    return await _LIST.response(request)


@router.get(
    "/v1/operators/{name}",
    **static_operation("getOperator", "Describe an operator", OperatorPage, 404, path={"name": "onnx.QuantizeLinear"}),
)
async def get_operator(request: Request, name: str) -> Response:
    """Describe one operator, such as onnx.QuantizeLinear."""
    try:
        operator = operator_named(name)
    except UnknownNameError as error:
        return error_response(request, error, status=404)
    return await _PAGES[operator.full_name].response(request)
