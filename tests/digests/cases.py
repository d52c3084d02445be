"""What a case is, and how the results of a plan become the arrays that a digest is taken of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from requant.mlir import parse_type
from requant.mlir.types import TensorType, Type
from requant.plan.plan import Plan
from tests.digests.patterns import LENGTHS

Array = NDArray[Any]
Found = Iterable[Array]


class Case(NamedTuple):
    """A case by its name, and what computes its arrays. A RequantError of it is a result as well."""

    name: str
    run: Callable[[], Found]


@cache
def tensor(element: str, shape: tuple[int, ...]) -> TensorType:
    """Return the type of a tensor."""
    parsed = parse_type(f"tensor<{''.join(f'{size}x' for size in shape)}{element}>")
    assert isinstance(parsed, TensorType)
    return parsed


@cache
def element_type(text: str) -> Type:
    """Return the type of an element."""
    return parse_type(text)


def number(value: float) -> str:
    """Return a scale as MLIR has it."""
    return f"{value:.17e}"


def converted(plan: Plan, source: Array, lengths: Iterable[int]) -> Iterator[Array]:
    """Yield the results of both halves, and of pieces of them by turns: outputs and tallies.

    Of what has an element without a result, only which one that is.
    """
    half = source.size // 2
    spans, begins = [(0, half), (half, source.size)], [0, half]
    for index, length in enumerate(lengths):
        begin, end = begins[index % 2], (half, source.size)[index % 2]
        if begin + length <= end:
            spans.append((begin, begin + length))
            begins[index % 2] += length
    for first, last in spans:
        target = np.zeros(last - first, plan.output_dtype)
        counts = plan.new_counts()
        plan.step(source[first:last], target, first, counts)
        if counts[3] < 0:
            yield target
        yield counts if counts[3] < 0 else counts[3:4]


def lengths_of(index: int) -> Iterable[int]:
    """Return every sixteenth of LENGTHS: those of a case by its place among the others."""
    return LENGTHS[index % 16 :: 16]
