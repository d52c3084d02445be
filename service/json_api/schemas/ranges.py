"""What the routes that turn ranges into scales and zero points read and answer."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import FailFast, Field

from core.parameters.ranges import RangeOptions
from service.http.models import ABSENT, Int32, Int64, ReplyModel, RequestModel, component
from service.json_api.schemas.tensors import OutputTensor, Tensor
from service.runtime.settings import MOST_ENTRIES

Numbers = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], FailFast(), Field(max_length=MOST_ENTRIES)]
Sizes = Annotated[list[Annotated[Int64, Field(ge=1, le=2**63 - 1)]], FailFast(), Field(max_length=64)]


class ParameterOptions(RequestModel):
    """What is asked of a range rule. GET /openapi.json lists the schemes; each has some of the options."""

    storage: str = Field(
        description="The storage of the type, with bounds where they are narrower: i8, u4, i8<-127:127>.",
        examples=["i8", "u8", "i8<-127:127>"],
        max_length=256,
    )
    scheme: Annotated[str, component("RangeSchemeName", "The system whose rule is used.")]
    expressed: str = Field(default="f32", description="The expressed type of the finished type.", max_length=256)
    symmetric: bool = Field(default=False, description="A range of -m to m, with a fixed zero point.")
    narrow: bool = Field(default=False, description="The lowest stored value is not used.")
    reduced: bool = Field(default=False, description="The system's reduced range of stored values.")
    power_of_two: bool = Field(default=False, description="Scales that are powers of two.")
    preserve_sparsity: bool = Field(default=False, description="FBGEMM's symmetric range.")
    minimum_real_range: float = Field(
        default=0.0, description="The least width of a range; narrower ones are widened.", allow_inf_nan=False
    )
    epsilon: float = Field(default=0.0, description="The smallest scale. Absent: the system's.", allow_inf_nan=False)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the rule that were sent."""
        return self.given(*(field.name for field in fields(RangeOptions)))


class RangeRequest(ParameterOptions):
    """Ranges of real numbers: one, or one for each index of an axis, or one for each block."""

    minimums: Numbers = Field(min_length=1, examples=[[-1.0]])
    maximums: Numbers = Field(min_length=1, examples=[[2.0]])
    axis: Int32 = Field(default=0, ge=0, le=2**31 - 1, description="The axis that has a range for each index.")
    shape: Sizes = Field(default=[], description="The shape of the tensor, for ranges of blocks.")
    block_sizes: Sizes = Field(
        default=[],
        description="The size of a block along each dimension of the shape. The ranges are row-major over the blocks.",
    )


class ParametersReply(ReplyModel):
    """Scales and zero points, in the order of the ranges, and the type that they make."""

    scheme: str
    storage: str = Field(description="The storage, with the bounds that the parameters were made for.")
    scales: list[float]
    zero_points: list[Int64]
    type: str = Field(
        default="", description="The finished MLIR type. Absent where no type has the scales; then untyped says why."
    )
    untyped: str = Field(default="", description="Why there is no type, such as a scale of 0.")
    nudged_minimums: list[float] = Field(
        default=[], description="Where the system moves the range to have zero as a step: the range moved."
    )
    nudged_maximums: list[float] = Field(default=[])


class BiasRequest(RequestModel):
    """The scales of an input and of weights, and perhaps the bias that is to be added to their products."""

    input_scale: float = Field(allow_inf_nan=False, examples=[0.5])
    weight_scales: Numbers = Field(min_length=1, description="One, or one for each channel.", examples=[[0.25, 0.125]])
    scheme: Annotated[str, component("BiasSchemeName", "The system whose rule is used.")]
    bias: Tensor = Field(default=ABSENT, description="Of f32: any shape with one scale, else one for each channel.")


class BiasReport(ReplyModel):
    """What happened to the elements of a bias."""

    elements: Int64
    saturated_low: Int64
    saturated_high: Int64


class BiasReply(ReplyModel):
    """Scales, zero points that are all 0, the type that they make, and the bias in it."""

    scheme: str
    scales: list[float]
    zero_points: list[Int64]
    type: str = Field(default="", description="As in the reply for ranges; several scales are along axis 0.")
    untyped: str = Field(default="")
    output: OutputTensor = Field(default=ABSENT, description="Where a bias was sent: int32.")
    report: BiasReport = Field(default=ABSENT)


class FakeQuantizeRequest(RequestModel):
    """A tensor of f32 and its range, or a range for each index of its last axis."""

    input: Tensor
    minimums: Numbers = Field(min_length=1, examples=[[-1.0]])
    maximums: Numbers = Field(min_length=1, examples=[[1.0]])
    num_bits: Int32 = Field(default=8, ge=2, le=16)
    narrow_range: bool = Field(default=False, description="One level less, so that there are as many on both sides.")
    scheme: Annotated[str, component("FakeQuantizeSchemeName", "Default: tf_fake_quant.")] = "tf_fake_quant"
    axis: Int32 = Field(default=0, ge=0, le=2**31 - 1, description="The last axis, where there are several ranges.")


class FakeQuantizeReply(ReplyModel):
    """The tensor on the steps of its ranges, and the ranges that were used: moved to have zero as a step."""

    output: OutputTensor
    scales: list[float]
    nudged_minimums: list[float]
    nudged_maximums: list[float]
