"""What the route that finds parameters in data reads and answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from service.http.models import ABSENT, Int32, Int64, component
from service.json_api.schemas.ranges import ParameterOptions, ParametersReply, Sizes
from service.json_api.schemas.tensors import Tensor

MOST_TENSORS = 256


class GranularityName(StrEnum):
    """What has a range of its own."""

    PER_TENSOR = "per_tensor"
    PER_AXIS = "per_axis"
    SUB_CHANNEL = "sub_channel"


class TensorParametersRequest(ParameterOptions):
    """A tensor of real numbers, or several that were seen one after the other, and how to find ranges in them.

    Each method has some of the options; its own defaults hold where they are absent.
    """

    input: Tensor = Field(default=ABSENT, description="This or inputs.")
    inputs: Annotated[list[Tensor], FailFast()] = Field(
        default=[], min_length=1, max_length=MOST_TENSORS, description="Several tensors of one type, in their order."
    )
    method: Annotated[str, component("CalibrationMethodName", "Default: min_max.")] = "min_max"
    scheme: Annotated[
        str, component("RangeSchemeName", "The rule that turns ranges into parameters. Default: the method's system's.")
    ] = ""
    expressed: str = Field(
        default="", description="The expressed type of the finished type. Default: the input's.", max_length=256
    )
    granularity: GranularityName = Field(default=GranularityName.PER_TENSOR, strict=False)
    axis: Int32 = Field(default=0, ge=0, le=2**31 - 1, description="For per_axis: the axis.")
    block_sizes: Sizes = Field(
        default=[],
        description="For sub_channel: the size of a block along each dimension. The ranges are row-major over the "
        "blocks, the last of which may be short.",
    )
    averaging_constant: float = Field(
        default=ABSENT, description="For moving_average: the weight of a new tensor. Default: 0.01."
    )
    percentile: float = Field(
        default=ABSENT, description="For percentile: how much the range keeps, in percent. Default: 99.999."
    )
    magnitudes: bool = Field(default=False, description="For percentile: of |x|, so that the range is around 0.")
    bins: Int64 = Field(default=ABSENT, description="Of the histogram. Default: 2048; for entropy 128.")
    quantized_bins: Int64 = Field(
        default=ABSENT, description="For the entropies: what the histogram is merged into. Default: 128."
    )
    first_bins: Int64 = Field(
        default=ABSENT, description="For entropy_model_optimizer: bins of the smallest candidate. Default: 128."
    )
    candidates: Int64 = Field(default=ABSENT, description="For mse: how many ranges are tried. Default: 100.")
    profile: Annotated[str, component("ProfileName", "For mse. Default: stablehlo.")] = ABSENT

    @model_validator(mode="after")
    def _one_form(self) -> TensorParametersRequest:
        if len(self.model_fields_set & {"input", "inputs"}) != 1:
            raise PydanticCustomError("input_form", "exactly one of input and inputs has to be there")
        return self


class TensorParametersReply(ParametersReply):
    """Scales and zero points, the type that they make, and the ranges that were found, one for each scale."""

    method: str
    minimums: list[float] = Field(description="As found, before the scheme's rule.")
    maximums: list[float]
    left_out: Int64 = Field(description="NaN or infinite elements that had no part, where the method leaves such out.")
