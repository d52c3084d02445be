"""Calls of other systems' operators, within the limits of the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from requant.description import TensorValue, Value, cost_of_sums
from requant.errors import RequantError, UnsupportedError, excerpt
from requant.mlir import print_type
from requant.mlir.types import TensorType
from requant.operators.checks import checked_call
from requant.operators.description import Operator, Run
from requant.operators.element_names import container
from requant_service.operations.described import check_size
from requant_service.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class PlannedOperator:
    """The work of a checked call, about how much memory it takes, and the bytes of a tensor that take about as long."""

    run: Run
    byte_count: int
    weight: int


def operand_dtype(tensor: TensorType) -> np.dtype[Any]:
    """Return the dtype that the elements of an operand are kept in. Raise UnsupportedError for a type without one."""
    dtype = container(tensor.element)
    if dtype is None:
        raise UnsupportedError(f"tensors of {excerpt(print_type(tensor.element))} are not supported")
    return dtype


@contextmanager
def _at_given(attributes: Mapping[str, Value]) -> Iterator[None]:
    """Point at no attribute that has its default: the request does not have it."""
    try:
        yield
    except RequantError as error:
        _, part, name = [*(error.pointer or "//").split("/"), "", ""][:3]
        if part == "attributes" and name and name not in attributes:
            error.detail += f" ({name} has its default)"
            error.pointer = None
        raise


def plan_operator(
    operator: Operator,
    opset: int | None,
    implementation: str,
    operands: Mapping[str, TensorValue],
    attributes: Mapping[str, Value],
    settings: Settings,
) -> PlannedOperator:
    """Check and plan a call. See `requant.operators.checks.checked_call` for the arguments, errors and their pointers.

    Raise LimitError for an output of too many elements or products.
    """
    with _at_given(attributes):
        work = operator.work_of(checked_call(operator, opset, implementation, operands, attributes))
    check_size(work.elements, work.products, settings)
    return PlannedOperator(work.run, work.working_bytes(operands), cost_of_sums(work.elements, work.products))
