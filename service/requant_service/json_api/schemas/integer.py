"""What the integer operations read and answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from requant.integer.window import Layout, Padding, WeightsLayout
from requant.plan.packing import Packing
from requant.profiles.integer_rule import Accumulator, SumOverflow
from requant_service.http.models import ABSENT, Int32, ReplyModel, RequestModel, component
from requant_service.json_api.schemas.conversions import Report, UsedMultiplier
from requant_service.json_api.schemas.tensors import OutputTensor, PackingChoice, Tensor

_OUTPUT = (
    "MLIR text: a quantized type, whose storage bounds act as a fused activation, or i32 or i64 for the unscaled "
    "sums. A bare element type takes its shape from the operation."
)
_ACCUMULATOR = (
    "The accumulator type of the products. Default: the type of a plain integer output; i64 with a plain 64-bit "
    "bias; without a bias, i64 for operands of more than 8 bits, except for a matmul without batch dimensions in "
    "litert_xnnpack; else i32."
)
_Trace = Annotated[bool, Field(description="Whether to return every stage. Default: false.")]


class ProductRequest(RequestModel):
    """What every sum of products can be asked for."""

    bias: Tensor = Field(
        default=ABSENT,
        description="One number per column, added to its sums: plain integers at the scale of the sums, or "
        "quantized with zero point 0 and rescaled if the scales differ.",
    )
    output_type: str = Field(description=_OUTPUT, examples=["!quant.uniform<i8:f32, 0.25:-1>", "i32"])
    profile: Annotated[str, component("ProfileName", "Default: litert.")] = "litert"
    scheme: Annotated[str, component("SchemeName", "Replaces the profile's scheme.")] = ""
    accumulator: Accumulator = Field(default=ABSENT, strict=False, description=_ACCUMULATOR)
    overflow: SumOverflow = Field(
        default=ABSENT,
        strict=False,
        description="What to do if a sum, including the bias, overflows i32. Default: as in the profile's system.",
    )
    packing: PackingChoice = Packing.UNPACKED
    trace: _Trace = False


class MatmulRequest(ProductRequest):
    """A matrix product, [.., M, K] by [.., K, N]. Batch dimensions are broadcast."""

    lhs: Tensor = Field(description="Quantized, or plain integers (zero point 0); storage of 2 to 16 bits.")
    rhs: Tensor = Field(description="As lhs. Parameters may go along any dimension but K, such as N.")


_Pair = Annotated[list[Annotated[Int32, Field(ge=1, le=2**31 - 1)]], Field(min_length=2, max_length=2)]


class Conv2dRequest(ProductRequest):
    """A 2-D convolution. Depthwise: as many groups as input channels."""

    input: Tensor = Field(description="Quantized per tensor, or plain integers; storage of 2 to 16 bits.")
    weights: Tensor = Field(description="Like the input, or quantized along the output channels.")
    layout: Layout = Field(
        default=Layout.NHWC, strict=False, description="The dimensions of input and output. Default: NHWC."
    )
    weights_layout: WeightsLayout = Field(
        default=ABSENT,
        strict=False,
        description="The dimensions of the weights; I is the input channels of a group. Default: OHWI with NHWC, OIHW "
        "with NCHW.",
    )
    strides: _Pair = Field(default=[], description="Vertical and horizontal. Default: 1, 1.")
    dilations: _Pair = Field(default=[], description="Vertical and horizontal. Default: 1, 1.")
    padding: Padding = Field(
        default=Padding.EXPLICIT,
        strict=False,
        description="How the input is padded, with its zero point. same_upper is TensorFlow's SAME. Default: explicit.",
    )
    pads: Annotated[list[Annotated[Int32, Field(ge=0, le=2**31 - 1)]], Field(min_length=4, max_length=4)] = Field(
        default=[], description="Top, left, bottom, right, with explicit padding. Default: none."
    )
    groups: Int32 = Field(default=1, ge=1, le=2**31 - 1, description="Default: 1.")


class AddRequest(RequestModel):
    """Two quantized tensors to add element by element, with broadcasting."""

    lhs: Tensor = Field(description="Quantized, with storage of 2 to 16 bits.")
    rhs: Tensor = Field(description="As lhs.")
    output_type: str = Field(
        description="MLIR text: a quantized type. Its storage bounds act as a fused activation.",
        examples=["!quant.uniform<i8:f32, 0.25:-1>"],
    )
    profile: Annotated[str, component("ProfileName", "Default: litert.")] = "litert"
    packing: PackingChoice = Packing.UNPACKED
    trace: _Trace = False


class AddTrace(ReplyModel):
    """The intermediate values of an addition, as far as the profile's arithmetic has them."""

    multipliers: list[UsedMultiplier] = Field(
        description="Those of lhs and rhs, and of the sum if it has one; empty if real numbers are added."
    )
    lhs_shifted: OutputTensor = Field(default=ABSENT, description="(a - za) * 2^20, or 2^15 for 16 bits.")
    rhs_shifted: OutputTensor = Field(default=ABSENT, description="The same of rhs.")
    lhs_scaled: OutputTensor = Field(default=ABSENT, description="lhs at the scale of the sum.")
    rhs_scaled: OutputTensor = Field(default=ABSENT, description="rhs at the scale of the sum.")
    sum: OutputTensor = Field(default=ABSENT)
    scaled: OutputTensor = Field(default=ABSENT, description="The sum at the scale of the output.")
    after_zero_point: OutputTensor = Field(default=ABSENT, description="After adding the output's zero point.")
    lhs_real: OutputTensor = Field(default=ABSENT, description="lhs as real numbers.")
    rhs_real: OutputTensor = Field(default=ABSENT, description="rhs as real numbers.")
    real_sum: OutputTensor = Field(default=ABSENT)
    after_clamp: OutputTensor = Field(description="The output.")


class AddReply(ReplyModel):
    """The output, a report, and the trace if requested."""

    output: OutputTensor
    report: Report
    trace: AddTrace = Field(default=ABSENT, description="Present if `trace` was requested.")


class IntegerReport(Report):
    """Counts of special elements, and how the result was computed."""

    accumulator: Accumulator
    overflow: SumOverflow


class ProductTrace(ReplyModel):
    """The intermediate values of a product, each in the order of the output; sums as held in the accumulator."""

    accumulator: OutputTensor = Field(description="Sums of products of stored numbers.")
    lhs_zero_point_correction: OutputTensor = Field(description="-za * sum b.")
    rhs_zero_point_correction: OutputTensor = Field(description="-zb * sum a.")
    zero_points_correction: OutputTensor = Field(description="K * za * zb, with K products per sum.")
    corrected: OutputTensor = Field(description="The sum of these four: sum (a - za) * (b - zb).")
    bias: OutputTensor = Field(default=ABSENT, description="The bias at the scale of the sums.")
    biased: OutputTensor = Field(default=ABSENT, description="The sums plus the bias.")
    multipliers: list[UsedMultiplier] = Field(
        description="One, or one per channel, in the scheme's convention; empty for a plain output."
    )
    scaled: OutputTensor = Field(
        default=ABSENT,
        description="Multiplied and shifted, as i32; an unrounded float if the scheme adds the zero point before "
        "rounding.",
    )
    after_zero_point: OutputTensor = Field(
        default=ABSENT, description="Rounded, plus the output's zero point, clamped to i32."
    )
    after_clamp: OutputTensor = Field(description="The output.")


class ProductReply(ReplyModel):
    """The output, a report, and the trace if requested."""

    output: OutputTensor
    report: IntegerReport
    trace: ProductTrace = Field(default=ABSENT, description="Present if `trace` was requested.")
