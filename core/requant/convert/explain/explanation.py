"""The explanation of a conversion: for each element the steps of its arithmetic, with its numbers.

Every explanation is checked against the conversion itself.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors.cancellation import checked
from requant.formats.elements import FloatElement
from requant.mlir.types import TensorType
from requant.plan.channels import block_counts
from requant.plan.float_arrays import COMPUTE_DTYPES, widen
from requant.plan.plan import Plan, Report


class StepKind(StrEnum):
    """The operation of a step."""

    FLUSH = "flush"
    """A subnormal number is flushed to zero."""
    SCALE = "scale"
    """The scale of the type is rounded as the profile or scheme holds it."""
    RECIPROCAL = "reciprocal"
    """1 / s."""
    DIVIDE = "divide"
    MULTIPLY = "multiply"
    ADD = "add"
    """Two scaled numbers."""
    MULTIPLY_ADD = "multiply_add"
    """Product and sum, rounded once."""
    CONVERT = "convert"
    """An integer becomes a float, a float another float or an int32."""
    ADD_ZERO_POINT = "add_zero_point"
    SUBTRACT_ZERO_POINT = "subtract_zero_point"
    ROUND = "round"
    """A float becomes an integer, or a small float."""
    CLAMP = "clamp"
    NAN = "nan"
    """What the profile stores for NaN."""
    DECODE = "decode"
    """The value of a code of a small float or a table; the fields of an f32."""
    ENCODE = "encode"
    """The code of a value."""
    OVERFLOW = "overflow"
    """What the profile gives for a value beyond the largest one of a small float."""
    FACTOR = "factor"
    """The ratio of the scales, or the number that a multiplier and shift represent."""
    MULTIPLIER = "multiplier"
    """The integer that represents the factor, together with a shift."""
    SHIFT = "shift"
    """The shift that belongs to the multiplier, or the right shift of the whole product."""
    REDUCE = "reduce"
    """The multiplier is reduced to 16 bits, or taken as 0 if the shift leaves nothing of the product."""
    SHIFT_LEFT = "shift_left"
    HIGH_MULTIPLY = "high_multiply"
    """The upper half of twice a product, rounded: the first of two roundings."""
    NUDGE = "nudge"
    """What TOSA's DOUBLE_ROUND adds to the product before it is shifted."""
    SHIFT_RIGHT = "shift_right"
    """A rounding shift to the right."""
    OFFSET = "offset"
    """The zero points of both sides, merged into one number."""
    ADD_OFFSET = "add_offset"


class Saturation(StrEnum):
    """The bound at which an element saturated."""

    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Step:
    """`symbol` = `formula`, and the same with numbers.

    `value` is the result: an integer, or the shortest decimal number that reads back in `precision` (all digits of a
    whole number); `bits` say exactly which float it is. `unrounded` is the exact result, if that is another number: it
    was rounded, or wrapped. `tie`: the exact result lies halfway between two numbers.
    """

    step: StepKind
    symbol: str
    formula: str
    inserted: str
    value: str
    precision: str
    bits: str | None = None
    unrounded: str | None = None
    tie: bool = False


@dataclass(frozen=True, slots=True)
class ElementExplanation:
    """The steps of one element, and their result, as the output holds it.

    `input` is the element as text, `parameter` the index of its scale and zero point in the quantized type. `result`
    is a float if the output type is, else an integer.
    """

    input: str
    parameter: int
    steps: tuple[Step, ...]
    result: int | float
    saturated: Saturation | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A conversion, explained. `formula`: the steps of an ordinary element, in order, each `symbol = formula`."""

    plan: Plan
    report: Report
    output: NDArray[Any]
    formula: tuple[str, ...]
    elements: tuple[ElementExplanation, ...]


Array = NDArray[Any]

# Elements explained between two checks for cancellation.
_CANCELLABLE = 16


class ContradictionError(RuntimeError):
    """An explanation and the conversion disagree: a defect of the explanation, which is not returned."""


@dataclass(frozen=True, slots=True)
class Explainer(ABC):
    """Explains the conversion of a plan."""

    plan: Plan

    @abstractmethod
    def element(self, index: int, source: Array) -> ElementExplanation:
        """Return the explanation of the element at a flat index of `source`, a tensor as the plan takes it."""

    @abstractmethod
    def formula(self) -> tuple[str, ...]:
        """Return the steps of an ordinary element, each `symbol = formula`."""

    def run(self, source: Array) -> Explanation:
        """Convert a flat tensor and explain each element.

        Raise what `Plan.run` raises, and ContradictionError if an explanation ends in another result.
        """
        output = np.empty(self.plan.elements, self.plan.output_dtype)
        report = self.plan.run(source, output)
        elements = tuple(self.element(index, source) for index in checked(range(source.size), every=_CANCELLABLE))
        for index, (explained, stored) in enumerate(zip(elements, numbers(output, self.plan.output_type), strict=True)):
            if not same(explained.result, stored):
                raise ContradictionError(f"element {index}: explained as {explained.result}, computed as {stored}")
        counted = tuple(sum(each.saturated is end for each in elements) for end in Saturation)
        if counted != (report.saturated_low, report.saturated_high):
            raise ContradictionError(f"saturated low and high: explained as {counted}, counted as {report}")
        return Explanation(self.plan, report, output, self.formula(), elements)


def formulas(explained: ElementExplanation) -> tuple[str, ...]:
    """Return the formulas of the steps of an element."""
    return tuple(f"{step.symbol} = {step.formula}" for step in explained.steps)


def numbers(array: Array, tensor: TensorType) -> list[int | float]:
    """Return the elements of a tensor as they are stored: floats, integers or codes."""
    element = tensor.element
    if isinstance(element, FloatElement) and element.name in COMPUTE_DTYPES:
        array = widen(array, element)
    elements: list[int | float] = array.tolist()
    return elements


def same(a: int | float, b: int | float) -> bool:
    """Return whether two numbers are the same: all NaNs are, zeros of different sign are not."""
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    return math.isnan(b) if math.isnan(a) else (a, math.copysign(1.0, a)) == (b, math.copysign(1.0, b))


def parameter_index(shape: Sequence[int], blocks: Sequence[int], element: int) -> int:
    """Return the index of an element's parameter, both row-major. `blocks`: the block size along each dimension."""
    index, weight = 0, 1
    for size, block, count in zip(
        reversed(shape), reversed(blocks), reversed(block_counts(shape, blocks)), strict=True
    ):
        element, place = divmod(element, size)
        index += place // block * weight
        weight *= count
    return index
