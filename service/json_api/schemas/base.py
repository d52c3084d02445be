"""The JSON face as pydantic models: what requests may hold, what replies hold, and how both look in OpenAPI.

Requests refuse unknown fields, so a misspelt option is never ignored. Optional fields are absent, never null: they have
a default here, and `model_fields_set` says whether they were there. Replies may grow, and say so to generated clients.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from service.runtime.runtime import HealthStatus
from service.runtime.settings import MOST_ENTRIES, Limits

# Marks a field whose schema is the enum component of that name; `openapi` puts the reference there.
COMPONENT = "x-component"

# Optional fields are absent, never null: the default is not validated, and a given null is refused.
ABSENT: Any = None

_MOST_UNKNOWN = 16

Int32 = Annotated[int, Field(json_schema_extra={"format": "int32"})]
Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]


def _drop_absent(schema: dict[str, Any]) -> None:
    """Drop the defaults that only stand for absence: an empty text, an empty list, a zero."""
    for field in schema.get("properties", {}).values():
        if not field.get("default", True):
            del field["default"]


def _open_reply(schema: dict[str, Any]) -> None:
    """Drop all defaults, since what a reply lacks is absent and has no value, and say that fields may be added.

    Clients that refuse unknown fields need to be told the latter.
    """
    for field in schema.get("properties", {}).values():
        field.pop("default", None)
    schema["additionalProperties"] = True


def component(component: str, description: str) -> Any:
    """Describe a text field by an enum component. `core` checks the name, so that its own message lists the others."""
    return Field(description=description, json_schema_extra={COMPONENT: component})


def _number(value: Any) -> Any:
    if type(value) not in (int, float, str):
        raise PydanticCustomError("number", 'input should be a number, "NaN", "Infinity" or "-Infinity"')
    return value


class RequestModel(BaseModel):
    """Base of what clients send."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, json_schema_extra=_drop_absent)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: Any) -> Any:
        """Refuse a great many unknown fields at once: each would become an error of its own before any is told."""
        if isinstance(value, dict) and len(value) > len(cls.model_fields) + _MOST_UNKNOWN:
            count, known = len(value), ", ".join(cls.model_fields)
            raise PydanticCustomError(
                "extra_forbidden", "there are {count} fields; known are {known}", {"count": count, "known": known}
            )
        return value


class ReplyModel(BaseModel):
    """Base of what clients get."""

    model_config = ConfigDict(frozen=True, json_schema_extra=_open_reply)


Values = Annotated[
    list[Annotated[Any, BeforeValidator(_number)]],
    FailFast(),
    Field(
        max_length=MOST_ENTRIES,
        description='The elements in row-major order, as numbers. Non-finite floats are the strings "NaN", '
        '"Infinity" and "-Infinity". At most `max_values` elements (4096 by default).',
    ),
]
Data = Annotated[
    str,
    Field(
        description="The elements in row-major order, little-endian, as standard base64 with padding.",
        json_schema_extra={"contentEncoding": "base64"},
    ),
]


class Tensor(RequestModel):
    """A tensor: its type, and either `data` or `values`."""

    type: str = Field(
        description="MLIR text: the shape and the element type.",
        examples=["tensor<2x3xf32>", "tensor<4x!quant.uniform<i8:f32, 0.5:3>>"],
    )
    data: Data = ""
    values: Values = []

    @model_validator(mode="after")
    def _one_form(self) -> Tensor:
        if len(self.model_fields_set & {"data", "values"}) != 1:
            raise PydanticCustomError("tensor_form", "exactly one of data and values is required")
        return self


class ParseTypeRequest(RequestModel):
    """A type text to parse."""

    text: str = Field(description="MLIR text.", examples=["tensor<2x3x!quant.uniform<i8:f32:1, {0.5:3, 0.25, 0.125}>>"])


class OutputTensor(ReplyModel):
    """A tensor: its type in canonical text, and `data` or `values`, in the form of the input."""

    type: str
    data: Data = ""
    values: Values = []


class OperationRule(ReplyModel):
    """How a profile computes one operation; x real, q quantized, s scale, z zero point, lo and hi storage bounds."""

    formula: str
    precision: str
    rounding: str
    zero_point: str
    saturation: str
    nan: str
    expressed: list[str] = Field(description="The expressed types that the rule supports.")
    storages: list[str] = Field(description="The storage types that the rule supports.")
    granularities: list[str] = Field(description="per_tensor, per_axis, sub_channel.")
    quotient: str = Field(description="Quantize: how x / s is computed.")
    steps: str = Field(description="The precision of each step on f16 and bf16: expressed or f32.")
    scales: str = Field(description="The precision that scales are rounded to first: expressed or f32.")
    overflow: str = Field(description="Quantize: the result of a value outside the storage bounds.")
    missing: str = Field(description="Quantize: the result of NaN.")
    difference: str = Field(description="Dequantize: how q - z and the product are computed.")
    pairs: list[str] = Field(description="Requantize: the supported pairs of storage types; empty: all.")
    symmetric: list[str] = Field(description="Storage types whose zero points must be 0.")
    short_blocks: bool = Field(description="Whether the last block may be short.")
    scheme: str = Field(default="", description="Requantize: how multipliers are derived.")
    variants: dict[str, OperationRule] = Field(
        description="Rules that replace this one for a storage type, a granularity, both, or an expressed type."
    )


class SpecialCodes(ReplyModel):
    """The codes of special f32 values in a format, in hexadecimal."""

    overflow: str = Field(description="A finite value beyond the largest one.")
    negative_overflow: str
    infinity: str
    negative_infinity: str
    nan: str = Field(description="0x7FC00000.")
    negative_nan: str = Field(description="0xFFC00000.")
    negative_zero: str


class CastFormat(ReplyModel):
    """A float of at most 16 bits: its range, and what a profile does with values outside it."""

    type: str
    exponent_bits: Int32
    mantissa_bits: Int32
    bias: Int32
    largest: str = Field(description="The largest finite value.")
    largest_code: str
    codes: SpecialCodes = Field(description="Under the profile's default.")
    saturate_false: SpecialCodes = Field(
        default=ABSENT, description="With saturate = false, if the profile offers the choice."
    )


class CastRule(ReplyModel):
    """How a profile casts between unquantized floats, and to small floats as storage after scaling."""

    authority: str = Field(description="The system whose behaviour applies where the formats leave a choice.")
    formula: str
    f64: str = Field(description="How an f64 is rounded.")
    saturation: str
    nan: str
    scale: str = Field(default="", description="How an f32 x is encoded to f8E8M0FNU, if the profile does so.")
    scale_roundings: list[str] = Field(description="The roundings available for f8E8M0FNU, the default first.")
    notes: str = Field(default="")
    sources: list[str] = Field(description="The floats that can be cast from, and that small floats can be cast to.")
    formats: list[CastFormat]


class ProductRule(ReplyModel):
    """How a profile computes products."""

    operator: str = Field(description="The operator of the real system.")
    overflow: str = Field(description="What happens by default if a sum overflows i32.")
    scheme: str = Field(
        default="", description="The scheme that scales the sums; if absent they are dequantized and quantized."
    )
    factor: str = Field(default="", description="How the factor is computed, if not as the scheme defines.")
    accumulator: str = Field(
        default="", description="The accumulator without a bias, if it is not derived from the operand widths."
    )
    variants: dict[str, ProductRule] = Field(
        description="Rules that replace this one: `batched` for rhs with batch dimensions, `i64` for sums of 64 bits, "
        "`undelegated i32` for sums of 32 bits where an operand has more than 8 or a signed rhs zero points, "
        "`undelegated i32 per_axis` for such sums with several scales of rhs."
    )


class AdditionRule(ReplyModel):
    """How a profile adds two quantized tensors."""

    operator: str = Field(description="The operator of the real system.")
    addition: str = Field(description="fixed_point, rescale, common_scale, to_output_scale or through_real.")
    scheme: str = Field(default="", description="The scheme of the multipliers, if there are any.")


class Profile(ReplyModel):
    """A named arithmetic contract."""

    name: str
    title: str
    summary: str
    source: str
    operations: dict[str, OperationRule]
    products: dict[str, ProductRule] = Field(
        default=ABSENT, description="Present if the profile defines matmul and conv2d."
    )
    add: AdditionRule = Field(default=ABSENT, description="Present if the profile defines add.")
    casts: CastRule = Field(default=ABSENT, description="Present if the profile defines casts between floats.")


class ProfileList(ReplyModel):
    """All profiles."""

    profiles: list[Profile]


class Info(ReplyModel):
    """Versions and limits."""

    name: str
    version: str
    python: str
    packages: dict[str, str] = Field(description="Versions of the numeric packages.")
    machine: str
    threads: Int32
    kernels: Int32 = Field(description="Number of compiled kernels.")
    profiles: list[str]
    schemes: list[str]
    limits: Limits


class Health(ReplyModel):
    """Readiness of the service."""

    status: HealthStatus


class FieldProblem(ReplyModel):
    """One invalid field."""

    pointer: str = Field(description="JSON pointer (RFC 6901) into the body, or `/name` for a query parameter.")
    code: str
    detail: str
    offset: Int32 = Field(default=0, description="Index of the first invalid character, for type texts.")


class Problem(ReplyModel):
    """An error (RFC 9457). `code` is stable; GET `type` for an explanation."""

    type: str
    title: str
    status: Int32
    detail: str
    code: str
    errors: list[FieldProblem] = Field(default=[])
    error: str = Field(
        default="", description="Under /v2: the detail, in the member that clients of that protocol read."
    )
    offset: Int32 = Field(
        default=0,
        description="Index of the first invalid character in a type text or a module.",
    )
    line: Int32 = Field(default=0, description="Line of a module, from 1.")
    column: Int32 = Field(default=0, description="Column of a module, from 1.")
    caret: str = Field(default="", description="The text around the offset, and a caret under the character.")
    hint: str = Field(default="", description="What was probably meant.")
    index: Int64 = Field(default=0, description="Flat row-major index of the element in error.")
    limit: Int64 = Field(default=0, description="The limit that was exceeded.")
    request_id: str


class ProblemExplanation(ReplyModel):
    """Explanation of a problem code."""

    code: str
    status: Int32
    title: str
    explanation: str
