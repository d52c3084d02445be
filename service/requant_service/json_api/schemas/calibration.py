"""What the route that finds parameters in data reads and answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from requant.calibration.methods.search import GranularityName
from requant_service.http.models import ABSENT, Int32, Int64, component
from requant_service.json_api.schemas.ranges import ParameterOptions, ParametersReply, RangeRuleOptions, Sizes
from requant_service.json_api.schemas.tensors import Tensor

MAX_TENSORS = 256


class CalibrationFields(RangeRuleOptions):
    """The calibration method, what has a range of its own, and the range rule.

    Not every option applies to every method; absent options take the method's defaults.
    """

    method: Annotated[str, component("CalibrationMethodName", "Default: min_max.")] = "min_max"
    scheme: Annotated[str, component("RangeSchemeName", "The range rule. Default: that of the method's system.")] = ""
    granularity: GranularityName = Field(
        default=GranularityName.PER_TENSOR,
        strict=False,
    )
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
        default=ABSENT, description="For percentile: the percentage of elements that the range keeps. Default: 99.999."
    )
    magnitudes: bool = Field(default=False, description="For percentile: use |x|, so that the range is symmetric.")
    bins: Int64 = Field(default=ABSENT, description="Number of histogram bins. Default: 2048; for entropy 128.")
    quantized_bins: Int64 = Field(
        default=ABSENT, description="For the entropy methods: the number of quantized bins. Default: 128."
    )
    first_bins: Int64 = Field(
        default=ABSENT,
        description="For entropy_model_optimizer: number of bins of the smallest candidate. Default: 128.",
    )
    candidates: Int64 = Field(default=ABSENT, description="For mse: the number of candidate ranges. Default: 100.")
    profile: Annotated[str, component("ProfileName", "For mse. Default: stablehlo.")] = ABSENT


class TensorParametersRequest(CalibrationFields, ParameterOptions):
    """One tensor, or several in order of observation, and the calibration method.

    Not every option applies to every method; absent options take the method's defaults.
    """

    input: Tensor = Field(default=ABSENT, description="One tensor. Give either input or inputs.")
    inputs: Annotated[list[Tensor], FailFast()] = Field(
        default=[],
        min_length=1,
        max_length=MAX_TENSORS,
        description="Several tensors of one type, in order of observation.",
    )
    scheme: Annotated[str, component("RangeSchemeName", "The range rule. Default: that of the method's system.")] = ""
    expressed: str = Field(
        default="", description="The expressed type of the resulting type. Default: the input's.", max_length=256
    )

    @model_validator(mode="after")
    def _one_form(self) -> TensorParametersRequest:
        if len(self.model_fields_set & {"input", "inputs"}) != 1:
            raise PydanticCustomError("input_form", "exactly one of input and inputs is required")
        return self


class QuantizeCalibration(CalibrationFields):
    """How to derive the scales that `output_type` leaves open. `!quant.any` states the storage.

    `!quant.calibrated` states a range, so nothing is measured: it needs `storage` and `scheme`, and takes the options
    of the scheme.
    """

    granularity: GranularityName = Field(
        default=ABSENT,
        strict=False,
        description="Default: per_axis with axis, sub_channel with block_sizes, else per_tensor.",
    )
    storage: str = Field(
        default="", description="For a calibrated type: the storage type, such as i8 or u4.", max_length=256
    )


class TensorParametersReply(ParametersReply):
    """Scales and zero points, the resulting type, and the ranges found, one per scale."""

    method: str
    minimums: list[float] = Field(description="As found, before the range rule is applied.")
    maximums: list[float]
    left_out: Int64 = Field(description="NaN or infinite elements that the method excluded.")


class DerivedParameters(ParametersReply):
    """The scales and zero points derived for the output, its type without the shape, and the method."""

    method: str = Field(default="", description="The calibration method; absent if the output type stated a range.")
    minimums: list[float] = Field(default=[], description="The ranges found in the data, one per scale.")
    maximums: list[float] = Field(default=[])
    left_out: Int64 = Field(default=0, description="NaN or infinite elements that the method excluded.")
