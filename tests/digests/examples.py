"""What every described operation and every operator gives for its example: the bits of its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from requant.description import Operation
from requant.functions import run_operation
from requant.operations.operators import operation_of
from requant.operators.registry import OPERATORS
from tests.digests.cases import Case, Found
from tests.requests.catalog import CATALOG, Entry
from tests.requests.inference import inference


def cases() -> Iterator[Case]:
    for name, entry in CATALOG.items():
        operation = operation_of(OPERATORS[name]) if entry.operator else entry.described
        # A call of calls computes what these give.
        if isinstance(operation, Operation) and operation.calls is None:
            yield Case(f"example of {name}", partial(_found, operation, entry))


def _found(operation: Operation, entry: Entry) -> Found:
    example, call = entry.example, inference(entry, entry.example)
    tensors: Mapping[str, Any] = example["inputs"] if entry.operator else example
    named = {model: name for name, model in {**entry.tensors, **entry.numbers}.items()}
    arrays = {named[part.name]: part.array for part in call.parts if part.name in named}
    types = {name: tensors[name]["type"] for name in entry.tensors if name in arrays}
    stated = {**example, **example.get("attributes", {})}
    names = {each.name for each in operation.options} - {"packing"}
    result = run_operation(operation, arrays, types, {name: stated[name] for name in names & stated.keys()})
    for value in (*result.outputs.values(), *result.stages.values()):
        yield value.data
    yield from result.numbers.values()
    yield np.frombuffer(repr(sorted(result.report.items())).encode(), np.uint8)
