"""What the routes that turn ranges into scales and zero points read and answer."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import FailFast, Field

from requant.calibration.ranges import RangeOptions
from requant_service.http.models import ABSENT, Int32, Int64, Numbers, ReplyModel, RequestModel, component
from requant_service.json_api.schemas.tensors import OutputTensor, Tensor

Sizes = Annotated[list[Annotated[Int64, Field(ge=1, le=2**63 - 1)]], FailFast(), Field(max_length=64)]


class RangeRuleOptions(RequestModel):
    """What is asked of a range rule. Each rule has some of the options."""

    symmetric: bool = Field(default=False, description="A range of -m to m, with a fixed zero point.")
    narrow: bool = Field(default=False, description="Do not use the lowest quantized value.")
    reduced: bool = Field(default=False, description="Use the system's reduced range of quantized values.")
    power_of_two: bool = Field(default=False, description="Round scales to powers of two.")
    preserve_sparsity: bool = Field(default=False, description="FBGEMM's symmetric range.")
    minimum_real_range: float = Field(
        default=0.0, description="The minimum width of a range; narrower ranges are widened.", allow_inf_nan=False
    )
    epsilon: float = Field(default=0.0, description="The smallest scale. Default: the system's.", allow_inf_nan=False)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the rule that were sent."""
        return self.given(*(field.name for field in fields(RangeOptions)))


class ParameterOptions(RangeRuleOptions):
    """What is asked of a range rule. GET /openapi.json lists the schemes; each has some of the options."""

    storage: str = Field(
        description="The storage type, with bounds if narrower: i8, u4, i8<-127:127>.",
        examples=["i8", "u8", "i8<-127:127>"],
        max_length=256,
    )
    scheme: Annotated[str, component("RangeSchemeName", "The rule, named after its system.")]
    expressed: str = Field(default="f32", description="The expressed type of the resulting type.", max_length=256)


class RangeRequest(ParameterOptions):
    """Ranges of real values: one, one per index of an axis, or one per block."""

    minimums: Numbers = Field(min_length=1, examples=[[-1.0]])
    maximums: Numbers = Field(min_length=1, examples=[[2.0]])
    axis: Int32 = Field(default=0, ge=0, le=2**31 - 1, description="The axis along which there is a range per index.")
    shape: Sizes = Field(default=[], description="The shape of the tensor, for ranges of blocks.")
    block_sizes: Sizes = Field(
        default=[],
        description="The size of a block along each dimension of the shape. The ranges are row-major over the blocks.",
    )


class ParametersReply(ReplyModel):
    """Scales and zero points in the order of the ranges, and the resulting type."""

    scheme: str
    storage: str = Field(description="The storage type, with the bounds that the parameters were derived for.")
    scales: list[float]
    zero_points: list[Int64]
    type: str = Field(
        default="",
        description="The resulting MLIR type. Absent if no type can hold the scales; `untyped` then gives the reason.",
    )
    untyped: str = Field(default="", description="Why there is no type, for example a scale of 0.")
    nudged_minimums: list[float] = Field(
        default=[], description="The nudged range, if the system moves it so that zero is exactly representable."
    )
    nudged_maximums: list[float] = Field(default=[])


class BiasRequest(RequestModel):
    """The scales of an input and of weights, and optionally the bias to quantize."""

    input_scale: float = Field(allow_inf_nan=False, examples=[0.5])
    weight_scales: Numbers = Field(min_length=1, description="One, or one per channel.", examples=[[0.25, 0.125]])
    scheme: Annotated[str, component("BiasSchemeName", "The rule, named after its system.")]
    bias: Tensor = Field(default=ABSENT, description="f32: any shape with one scale, else one element per channel.")


class BiasReport(ReplyModel):
    """What happened to the elements of a bias."""

    elements: Int64
    saturated_low: Int64
    saturated_high: Int64


class BiasReply(ReplyModel):
    """Scales, zero points (all 0), the resulting type, and the quantized bias."""

    scheme: str
    scales: list[float]
    zero_points: list[Int64]
    type: str = Field(default="", description="As in the response for ranges; several scales go along axis 0.")
    untyped: str = Field(default="")
    output: OutputTensor = Field(default=ABSENT, description="The bias as int32, if a bias was sent.")
    report: BiasReport = Field(default=ABSENT)


class FakeQuantizeRequest(RequestModel):
    """An f32 tensor and its range, or one range per index of its last axis."""

    input: Tensor
    minimums: Numbers = Field(min_length=1, examples=[[-1.0]])
    maximums: Numbers = Field(min_length=1, examples=[[1.0]])
    num_bits: Int32 = Field(default=8, ge=2, le=16)
    narrow_range: bool = Field(
        default=False, description="Do not use the lowest quantized value, so that the range is symmetric."
    )
    scheme: Annotated[str, component("FakeQuantizeSchemeName", "Default: tf_fake_quant.")] = "tf_fake_quant"
    axis: Int32 = Field(default=0, ge=0, le=2**31 - 1, description="The last axis, if there are several ranges.")


class FakeQuantizeReply(ReplyModel):
    """The fake-quantized tensor, and the nudged ranges that were used."""

    output: OutputTensor
    scales: list[float]
    nudged_minimums: list[float]
    nudged_maximums: list[float]
