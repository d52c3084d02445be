"""The explanation of a conversion: for each element the steps of its arithmetic, with its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from numpy.typing import NDArray

from requant.plan.plan import Plan
from requant.plan.report import Report


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
