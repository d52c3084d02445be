"""The derivation of multipliers in JSON."""

from __future__ import annotations

from typing import Annotated

from pydantic import FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from requant_service.http.models import Int32, Int64, NumberOrText, ReplyModel, RequestModel, component

_SCALE = "A number, or decimal or C99 hexadecimal text."


class ScaleTriple(RequestModel):
    """The scales of one factor, each a number, or decimal or C99 hexadecimal text, read as the nearest binary64."""

    input: NumberOrText = Field(description=f"The scale of the input. {_SCALE}", examples=[0.05])
    weight: NumberOrText = Field(
        default="", description=f"The scale of the second operand of a product. {_SCALE} Default: none."
    )
    output: NumberOrText = Field(description=f"The scale of the output. {_SCALE}", examples=["0.25"])


class MultiplierRequest(RequestModel):
    """Real factors, or the scales to compute them from."""

    factors: Annotated[list[NumberOrText], FailFast()] = Field(
        default=[],
        description="Numbers, or strings in decimal or C99 hexadecimal. Each is read as the nearest binary64, ties "
        "to even; a number means the same as a string of the same characters.",
        examples=[[0.0123, "0x1.8p-5"]],
    )
    scales: Annotated[list[ScaleTriple], FailFast()] = Field(
        default=[],
        description="Scales, from which the scheme computes factors in its own precision. Give either "
        "factors or scales.",
    )
    scheme: Annotated[str, component("SchemeName", "The scheme to derive them by.")]

    @model_validator(mode="after")
    def _one_form(self) -> MultiplierRequest:
        if len(self.model_fields_set & {"factors", "scales"}) != 1:
            raise PydanticCustomError("factors_form", "exactly one of factors and scales is required")
        return self


class DerivedMultiplier(ReplyModel):
    """The multiplier and shift for one factor, and their error."""

    multiplier: Int64
    shift: Int32 = Field(description="In the scheme's own sign convention.")
    represented: str = Field(description="The exact real value of multiplier and shift, as decimal text.")
    fraction: str = Field(description="The same as numerator/denominator; the denominator is a power of two.")
    factor: str = Field(
        description="The binary64 factor that they were derived from, as the shortest decimal text "
        "that reads back to it."
    )
    relative_error: float = Field(description="represented / factor - 1.")


class MultiplierReply(ReplyModel):
    """One result for each factor, in the order of the request."""

    scheme: str
    results: list[DerivedMultiplier]
