"""Every operation that answers requests: a body of its JSON route that works, and what its members are as a model.

All of it is read from the descriptions, but for the few operations that are listed at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from requant.description import Operation
from requant.operations import OPERATIONS
from requant.operations.conversions import CONVERSIONS
from requant.operations.explain import EXPLANATIONS
from requant.operators.description import Operator
from requant.operators.registry import OPERATORS
from requant_service.json_api.catalog.operators import route_path
from requant_service.oip.models.registry import MODELS
from tests.requests.document import EXAMPLES

Names = Mapping[str, str]


@dataclass(frozen=True)
class Entry:
    """An operation: its model, its JSON route, and a body that works.

    Each member of the body is an input of the model (`tensors`, `numbers`), some of one (`several`: a list of tensors;
    `columns`: a list of objects, a member of which is an input), or else a parameter. Those of an `operator` are in
    two groups, inputs and attributes. `types`: the parameter that has the type of a tensor. `calls`: the member that
    has calls of other operations.
    """

    model: str
    route: str
    example: Mapping[str, Any]
    tensors: Names = field(default_factory=dict)
    types: Names = field(default_factory=dict)
    numbers: Names = field(default_factory=dict)
    several: Names = field(default_factory=dict)
    columns: Mapping[str, Names] = field(default_factory=dict)
    operator: bool = False
    calls: str = ""
    described: Operation | Operator | None = None

    @property
    def versions(self) -> tuple[str, ...]:
        return MODELS[self.model].versions

    @property
    def datatypes(self) -> dict[str, tuple[str, ...]]:
        """The datatypes of each input of the model."""
        return {slot.name: slot.datatypes for slot in MODELS[self.model].inputs}

    @property
    def parameters(self) -> frozenset[str]:
        """The parameters of the model."""
        return frozenset(each.name for each in MODELS[self.model].parameters)


def _of_operation(operation: Operation) -> Entry:
    return Entry(
        model=operation.name,
        route=f"/v1/{operation.path or operation.name}",
        example=operation.example,
        tensors={each.name: each.model_name or each.name for each in operation.tensors},
        types={each.name: each.type_option for each in operation.tensors},
        numbers={each.name: each.model_name or each.name for each in operation.numbers},
        several={each.several: each.model_name or each.name for each in operation.tensors if each.several},
        columns={
            records.name: {each.name: each.numbers.model_name or each.numbers.name for each in records.members}
            for records in operation.record_inputs
        },
        calls="" if operation.calls is None else operation.calls.name,
        described=operation,
    )


def _of_operator(operator: Operator) -> Entry:
    return Entry(
        model=operator.full_name,
        route=route_path(operator),
        example=operator.example,
        tensors={each.name: each.name for each in operator.inputs},
        types={each.name: f"{each.name}_type" for each in operator.inputs},
        operator=True,
        described=operator,
    )


_MULTIPLIERS = {"multiplier": "multiplier", "shift": "shift"}


def _of_example(model: str, route: str, **members: Any) -> Entry:
    return Entry(model, route, EXAMPLES[route], **members)


# Those whose members no description says, or not all of them.
_UNDESCRIBED = (
    _of_example("vectors", "/v1/vectors", columns={"multipliers": _MULTIPLIERS}),
    _of_example("evaluate", "/v1/evaluate", several={"inputs": "input"}),
)


def _entries() -> Iterator[Entry]:
    yield from map(_of_operation, (*CONVERSIONS.values(), *EXPLANATIONS.values(), *OPERATIONS.values()))
    yield from _UNDESCRIBED
    yield from map(_of_operator, OPERATORS.values())


CATALOG: Mapping[str, Entry] = {entry.model: entry for entry in _entries()}
"""All of them by the names of their models."""
OF_ROUTE: Mapping[str, Entry] = {entry.route: entry for entry in CATALOG.values()}
"""The same by the paths of their JSON routes."""
