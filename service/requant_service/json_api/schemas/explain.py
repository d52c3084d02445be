"""Replies of the explained conversions: the reply of the conversion, and the steps of each element.

Numbers are decimal texts, because they are integers in one step and floats in another, and may be NaN.
"""

from __future__ import annotations

from pydantic import Field

from requant.convert.explain.explanation import Saturation, StepKind
from requant_service.http.models import ABSENT, Int32, ReplyModel
from requant_service.json_api.schemas.conversions import ConversionReply, QuantizeReply, RequantizeReply


class ExplainedStep(ReplyModel):
    """One operation of the arithmetic, `symbol` = `formula`."""

    step: StepKind = Field(description="What is done.")
    symbol: str = Field(description="The name of the result in later formulas.", examples=["v"])
    formula: str = Field(examples=["x / s"])
    inserted: str = Field(description="The formula with the numbers of this element.", examples=["0.25 / 0.5"])
    value: str = Field(
        description="The result: an integer, or the shortest decimal number that reads back in `precision`, for bf16 "
        "and small floats in f32; all digits of a whole number.",
        examples=["0.5"],
    )
    precision: str = Field(
        description="What the result is rounded to: f16, bf16, f32, f64 or a small float; i32 wraps; integer has any "
        "size."
    )
    bits: str = Field(default=ABSENT, description="The bits of a float, in hexadecimal.")
    unrounded: str = Field(
        default=ABSENT,
        description="The exact result, if it was rounded or wrapped: all digits up to 30, else the first 20 and an "
        "ellipsis.",
    )
    tie: bool = Field(default=ABSENT, description="True if the exact result lies halfway between two numbers.")


class ExplainedElement(ReplyModel):
    """The steps from an element to its result."""

    input: str
    parameter: Int32 = Field(description="Index of the scale and zero point in the type, row-major for blocks.")
    steps: list[ExplainedStep]
    result: str = Field(description="The element of `output`.")
    saturated: Saturation = Field(default=ABSENT, description="Present if the element saturated.")


class ExplainedQuantization(QuantizeReply):
    """The quantized tensor, a report, and the steps of each element."""

    formula: list[str] = Field(description="The steps of an ordinary element.", examples=[["s = f32(scale)"]])
    elements: list[ExplainedElement]


class ExplainedDequantization(ConversionReply):
    """The dequantized tensor, a report, and the steps of each element."""

    formula: list[str] = Field(description="The steps of an ordinary element.")
    elements: list[ExplainedElement]


class ExplainedRequantization(RequantizeReply):
    """The requantized tensor, a report, the multipliers, and the steps of each element."""

    formula: list[str] = Field(description="The steps of an ordinary element.")
    elements: list[ExplainedElement]
