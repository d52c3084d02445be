"""The request and response of /v1/vectors."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, FailFast, Field

from requant.convert.quantize import NanPolicy
from requant.convert.vectors.subject import ParameterReason, Reason
from requant.convert.vectors.vectors import DEFAULT_COUNT, MAX_VECTORS, MIN_PER_SET
from requant.description import LARGEST_INTEGER
from requant.operations.conversions import NAN, ROUNDING, SATURATE, SCHEME
from requant.operations.explain import STEPS
from requant.operators.tosa.rescale_plan import RescaleRounding
from requant_service.http.models import ABSENT, Int32, Int64, ReplyModel, RequestModel, component
from requant_service.json_api.schemas.conversions import MultiplierPair, as_multiplier
from requant_service.json_api.schemas.described import group_model
from requant_service.operations.vectors import MAX_GIVEN, Format, VectorsCall

_ZERO_POINT = "tosa.RESCALE. Default: 0 if multipliers are given, else several values are generated."

ExplainedStep: Any = group_model(STEPS)


class VectorsRequest(RequestModel):
    """An operation, its types, and the options of its arithmetic."""

    operation: str = Field(
        description="quantize, dequantize or requantize, or an operator by its full name: tosa.RESCALE, "
        "onnx.QuantizeLinear, onnx.DequantizeLinear and others; the error for an unknown name lists all.",
        examples=["tosa.RESCALE", "onnx.QuantizeLinear"],
    )
    input_type: str = Field(
        description="MLIR text of the element type. If it is a plain integer in place of a quantized type, the "
        "service generates the parameters.",
        examples=["i32", "f32"],
    )
    output_type: str = Field(
        default=ABSENT,
        description="MLIR text of the element type of the result. Required unless the operation dequantizes.",
        examples=["i8", "!quant.uniform<i8:f32, 0.5:3>"],
    )
    profile: Annotated[str, component("ProfileName", "Default: that of the operation.")] = ABSENT
    scheme: Annotated[str, component("SchemeName", f"requantize: {SCHEME.description}")] = ABSENT
    rounding: Annotated[str, component("RoundingName", f"quantize: {ROUNDING.description} Not stochastic.")] = ABSENT
    nan: NanPolicy = Field(
        default=ABSENT, strict=False, description=f"quantize: {NAN.description} Default: {NanPolicy.PROFILE}."
    )
    saturate: bool = Field(default=ABSENT, description=f"quantize: {SATURATE.description}")
    multipliers: Annotated[list[Annotated[MultiplierPair, AfterValidator(as_multiplier)]], FailFast()] = Field(
        default=[],
        max_length=MAX_GIVEN,
        description="requantize and tosa.RESCALE: parameter sets, one per multiplier; one multiplier per channel for "
        "types with an axis.",
    )
    input_zp: Int32 = Field(default=ABSENT, ge=-(2**31), le=2**31 - 1, description=_ZERO_POINT)
    output_zp: Int32 = Field(default=ABSENT, ge=-(2**31), le=2**31 - 1, description=_ZERO_POINT)
    scale32: bool = Field(default=ABSENT, description="tosa.RESCALE: whether multipliers have 32 bits. Default: true.")
    rounding_mode: RescaleRounding = Field(
        default=ABSENT, strict=False, description=f"tosa.RESCALE. Default: {RescaleRounding.SINGLE_ROUND}."
    )
    seed: Int64 = Field(default=0, ge=0, le=LARGEST_INTEGER, description="Seed of the random vectors and parameters.")
    count: Int32 = Field(
        default=DEFAULT_COUNT, ge=MIN_PER_SET, le=MAX_VECTORS, description="Maximum number of vectors."
    )
    format: Format = Field(
        default=Format.JSON,
        strict=False,
        description="json returns this response. The other formats return a file: npz as application/octet-stream, "
        "c_header as text/x-c, readmemh, for SystemVerilog's $readmemh, as text/plain.",
    )

    def call(self) -> VectorsCall:
        """Return the call that the request describes."""
        given = self.given()
        given.pop("format", None)
        if "multipliers" in given:
            given["multipliers"] = tuple(given["multipliers"])
        return VectorsCall(**given)


class VectorParameter(ReplyModel):
    """A parameter of a parameter set."""

    name: str = Field(examples=["multiplier"])
    value: str
    element: str = Field(description="Its element type, an integer or a float.", examples=["i32"])
    bits: str = Field(default=ABSENT, description="The bits of a float, in hexadecimal.")


class VectorParameterSet(ReplyModel):
    """A parameter set."""

    parameters: list[VectorParameter]
    why: list[ParameterReason] = Field(
        description="Why the set was selected: given in the request, or a property of its parameters."
    )


class TestVector(ReplyModel):
    """An input and its expected result. Numbers are decimal strings, as in explanations."""

    parameter_set: Int32 = Field(description="Index of its parameter set.")
    input: str
    input_bits: str = Field(description="The stored bits, in hexadecimal.", examples=["0x3E800000"])
    expected: str
    expected_bits: str
    why: list[Reason] = Field(description="Why the input was selected.")
    steps: list[ExplainedStep] = Field(description="The steps from the input to the result.")


class VectorsReply(ReplyModel):
    """The vectors, grouped by parameter set and in ascending order of their inputs."""

    operation: str
    profile: str
    input_element: str = Field(description="The element type of the inputs.", examples=["i32"])
    expected_element: str
    formula: list[str] = Field(description="The steps of an ordinary element of the first parameter set.")
    parameter_sets: list[VectorParameterSet]
    vectors: list[TestVector]
