"""A plan of an operation as the work of an operator, and the pointers of its errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from requant.description import Array
from requant.errors import RequantError, default_pointer
from requant.plan.plan import Plan


def converted(plan: Plan, source: Array, name: str) -> Array:
    """Return what a plan makes of the operand of that name."""
    target = np.empty(plan.elements, plan.output_dtype)
    with default_pointer(f"/inputs/{name}"):
        plan.run(source, target)
    return target


@contextmanager
def placed(pointers: Mapping[str, str]) -> Iterator[None]:
    """Put the pointer of its side on an error that passes through: of "lhs", "rhs", "bias" or "output".

    An error of no side is of the output, unless it has a pointer.
    """
    try:
        yield
    except RequantError as error:
        if error.side is not None and error.side in pointers:
            error.pointer = pointers[error.side]
        elif error.pointer is None:
            error.pointer = pointers.get("output")
        raise
