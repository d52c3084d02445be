"""What the TOSA route reads and answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import FailFast, Field

from requant.operators.tosa.rescale import SCALE32
from requant.operators.tosa.rescale_plan import RescaleRounding
from requant_service.http.models import Int32, ReplyModel, RequestModel
from requant_service.json_api.schemas.tensors import OutputTensor, Tensor
from requant_service.runtime.settings import MAX_ENTRIES

_ZERO_POINT = "If unsigned, the value or its signed bit pattern. Default: 0."


class RescaleRequest(RequestModel):
    """RESCALE's operands and attributes, by their names in TOSA 1.0."""

    input: Tensor = Field(
        description="i8, i16, i32 or i48 (64 bits each in `data`), of any rank. Unsigned values are sent as their "
        "signed bit patterns."
    )
    output_type: str = Field(
        description="i8, i16 or i32. A bare element type takes its shape from the input.",
        examples=["i8", "tensor<2x3xi8>"],
    )
    multiplier: Annotated[list[Annotated[Int32, Field(ge=-(2**31), le=2**31 - 1)]], FailFast()] = Field(
        max_length=MAX_ENTRIES,
        description="One, or with per_channel one per index of the last dimension. i32 with scale32, else i16.",
    )
    shift: Annotated[list[Annotated[Int32, Field(ge=-128, le=127)]], FailFast()] = Field(
        max_length=MAX_ENTRIES, description="One right shift per multiplier."
    )
    input_zp: Int32 = Field(default=0, ge=-(2**31), le=2**31 - 1, description=_ZERO_POINT)
    output_zp: Int32 = Field(default=0, ge=-(2**31), le=2**31 - 1, description=_ZERO_POINT)
    scale32: bool = Field(default=True, description=SCALE32.description)
    rounding_mode: RescaleRounding = Field(
        default=RescaleRounding.SINGLE_ROUND,
        strict=False,
        description="INEXACT_ROUND is computed in f32, as TOSA's reference model does.",
    )
    per_channel: bool = Field(
        default=False,
        description="Whether each index of the last dimension has its own multiplier. Default: false.",
    )
    input_unsigned: bool = Field(default=False, description="Whether the input is unsigned. Default: false.")
    output_unsigned: bool = Field(default=False, description="Whether the output is unsigned. Default: false.")


class RescaleReply(ReplyModel):
    """The rescaled tensor."""

    output: OutputTensor
