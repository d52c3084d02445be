"""What the three conversions read and answer."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, FailFast, Field

from requant.convert.quantize import NanPolicy
from requant.operations.conversions import (
    AXIS,
    MAX_MULTIPLIER,
    MAX_SHIFT,
    NAN,
    ROUNDING,
    SATURATE,
    SCHEME,
    SEED,
)
from requant.operations.options import REPORT, USED_MULTIPLIER
from requant.plan.plan import Packing
from requant.schemes import Multiplier
from requant_service.http.models import ABSENT, Int32, Int64, ReplyModel, RequestModel, component
from requant_service.json_api.schemas.calibration import DerivedParameters, QuantizeCalibration
from requant_service.json_api.schemas.described import report_model
from requant_service.json_api.schemas.tensors import OutputTensor, PackingChoice, Tensor
from requant_service.runtime.settings import MAX_ENTRIES

Report: Any = report_model(REPORT)
UsedMultiplier: Any = report_model(USED_MULTIPLIER)


class MultiplierPair(RequestModel):
    """An integer multiplier and a shift, in the sign convention of the scheme."""

    multiplier: Int64 = Field(ge=-MAX_MULTIPLIER, le=MAX_MULTIPLIER)
    shift: Int32 = Field(ge=-MAX_SHIFT, le=MAX_SHIFT)


def as_multiplier(pair: MultiplierPair) -> Multiplier:
    """Return what the arithmetic takes. There may be very many, and a model is slow to free."""
    return Multiplier(pair.multiplier, pair.shift)


_OUTPUT_TYPE = "MLIR text. A bare element type takes its shape from the input."


class QuantizeRequest(RequestModel):
    """A tensor to quantize, or to cast to a narrower float."""

    input: Tensor
    output_type: str = Field(
        description=f"{_OUTPUT_TYPE} A float of at most 16 bits is a cast. `!quant.any` and `!quant.calibrated` leave "
        "the scales to be derived.",
        examples=["!quant.uniform<i8:f32, 0.5:3>", "f8E4M3FNUZ", "!quant.any<i8:f32>"],
    )
    calibration: QuantizeCalibration = Field(
        default=ABSENT, description="How to derive the scales that output_type leaves open. Default: method min_max."
    )
    profile: Annotated[str, component("ProfileName", "Default: stablehlo.")] = "stablehlo"
    rounding: Annotated[str, component("RoundingName", ROUNDING.description)] = ""
    nan: NanPolicy = Field(default=NanPolicy.PROFILE, strict=False, description=NAN.description)
    seed: Int64 = Field(default=0, ge=0, le=SEED.highest, description=SEED.description)
    saturate: bool = Field(default=ABSENT, description=SATURATE.description)
    packing: PackingChoice = Packing.UNPACKED
    error: bool = Field(default=False, description="Whether to report the error against the input.")


class DequantizeRequest(RequestModel):
    """A quantized tensor, or floats of at most 16 bits, to dequantize."""

    input: Tensor
    output_type: str = Field(
        default="",
        description=f"{_OUTPUT_TYPE} Default: the expressed type of the input, or f32.",
        examples=["f32"],
    )
    profile: Annotated[str, component("ProfileName", "Default: stablehlo.")] = "stablehlo"
    packing: PackingChoice = Packing.UNPACKED


class RequantizeRequest(RequestModel):
    """Quantized values or accumulators to requantize."""

    input: Tensor
    output_type: str = Field(description=_OUTPUT_TYPE, examples=["!quant.uniform<i8:f32, 0.25:-1>"])
    profile: Annotated[str, component("ProfileName", "Default: litert.")] = "litert"
    scheme: Annotated[str, component("SchemeName", SCHEME.description)] = ""
    multipliers: Annotated[list[Annotated[MultiplierPair, AfterValidator(as_multiplier)]], FailFast()] = Field(
        default=[],
        max_length=MAX_ENTRIES,
        description="Replace the derived multipliers: one, or one per channel. Required for plain integers such as "
        "tensor<4xi64>, which have no scale.",
    )
    axis: Int32 = Field(default=0, ge=0, le=AXIS.highest, description=AXIS.description)
    packing: PackingChoice = Packing.UNPACKED


class ConversionReply(ReplyModel):
    """The converted tensor and a report."""

    output: OutputTensor
    report: Report


class QuantizeReply(ConversionReply):
    """The quantized tensor, a report, and the parameters that were derived."""

    parameters: DerivedParameters = Field(
        default=ABSENT, description="Present if output_type left the scales to be derived."
    )


class RequantizeReply(ConversionReply):
    """The converted tensor, a report, and the multipliers.

    There is one multiplier, or one per channel; none where the profile dequantizes and quantizes again.
    """

    multipliers: list[UsedMultiplier]
