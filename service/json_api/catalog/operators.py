"""An operator as its page shows it."""

from __future__ import annotations

import json
from typing import Any

from core.operators.description import Attribute, Operand, Operator
from service.json_api.schemas.operators import OperatorAttribute, OperatorOperand, OperatorPage, TypeSince


def route_path(operator: Operator) -> str:
    """Return the path of the operator's JSON route."""
    return f"/v1/{operator.system}/{operator.name}"


def operator_page(operator: Operator) -> OperatorPage:
    """Return the page of an operator."""
    versioned = bool(operator.versions)
    choices = operator.implementations
    return OperatorPage(
        name=operator.full_name,
        system=operator.system,
        operator=operator.name,
        summary=operator.summary,
        source=operator.source,
        path=route_path(operator),
        model=operator.full_name,
        versions=list(operator.versions),
        implementations=[] if choices is None else list(choices.values),
        inputs=[_operand(each, versioned=versioned) for each in operator.inputs],
        outputs=[_operand(each, versioned=versioned) for each in operator.outputs],
        attributes=[_attribute(each, versioned=versioned) for each in operator.attributes],
        deviations=list(operator.deviations),
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
