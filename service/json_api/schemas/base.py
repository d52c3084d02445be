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
        description="The elements in row-major order, as numbers. Floats that are not finite are the texts "
        '"NaN", "Infinity" and "-Infinity". At most as many as the limit max_values says, 4096 by default.',
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
            raise PydanticCustomError("tensor_form", "exactly one of data and values has to be there")
        return self


class ParseTypeRequest(RequestModel):
    """A text that should be a type."""

    text: str = Field(description="MLIR text.", examples=["tensor<2x3x!quant.uniform<i8:f32:1, {0.5:3, 0.25, 0.125}>>"])


class OutputTensor(ReplyModel):
    """A tensor: its type in canonical text, and `data` or `values`, whichever form the input had."""

    type: str
    data: Data = ""
    values: Values = []


class OperationRule(ReplyModel):
    """How a profile computes one operation. x real, q stored, s scale, z zero point, lo and hi the storage bounds."""

    formula: str
    precision: str
    rounding: str
    zero_point: str
    saturation: str
    nan: str
    expressed: list[str] = Field(description="The expressed types for which the rule is defined.")
    storages: list[str] = Field(description="The storages for which the rule is defined.")
    granularities: list[str] = Field(description="per_tensor, per_axis, sub_channel.")
    quotient: str = Field(description="How x / s is formed, in quantize.")
    steps: str = Field(description="What each step on f16 and bf16 is rounded to: expressed or f32.")
    scales: str = Field(description="What scales are rounded to first: expressed or f32.")
    overflow: str = Field(description="What becomes of an integer outside of the bounds, in quantize.")
    missing: str = Field(description="What becomes of NaN, in quantize.")
    difference: str = Field(description="How q - z and the product are formed, in dequantize.")
    pairs: list[str] = Field(description="The pairs of storages that are taken, in requantize; empty: all.")
    symmetric: list[str] = Field(description="Storages whose zero points have to be 0.")
    short_blocks: bool = Field(description="Whether a last block may be short.")
    scheme: str = Field(default="", description="How multipliers are derived, in requantize.")
    variants: dict[str, OperationRule] = Field(
        description="Rules that replace this one: for a storage, a granularity, both, or an expressed type."
    )


class SpecialCodes(ReplyModel):
    """What a few f32 values give in a format, as hexadecimal codes."""

    overflow: str = Field(description="A finite value beyond the largest one.")
    negative_overflow: str
    infinity: str
    negative_infinity: str
    nan: str = Field(description="0x7FC00000.")
    negative_nan: str = Field(description="0xFFC00000.")
    negative_zero: str


class CastFormat(ReplyModel):
    """A float of at most 16 bits: its numbers, and what a profile makes of what it does not hold."""

    type: str
    exponent_bits: Int32
    mantissa_bits: Int32
    bias: Int32
    largest: str = Field(description="The largest finite value.")
    largest_code: str
    codes: SpecialCodes = Field(description="As the profile does by default.")
    saturate_false: SpecialCodes = Field(
        default=ABSENT, description="With saturate false, where the profile leaves the choice."
    )


class CastRule(ReplyModel):
    """How a profile casts between floats that are not quantized; and to small floats as storage, after scaling."""

    authority: str = Field(description="Who decides where the formats leave a choice.")
    formula: str
    f64: str = Field(description="How an f64 is rounded.")
    saturation: str
    nan: str
    scale: str = Field(default="", description="How f8E8M0FNU is encoded from an f32 x, where it is.")
    scale_roundings: list[str] = Field(
        description="To f8E8M0FNU: the roundings that can be asked for, the default first."
    )
    notes: str = Field(default="")
    sources: list[str] = Field(description="The floats that are cast from, and to which small floats are cast.")
    formats: list[CastFormat]


class ProductRule(ReplyModel):
    """How a profile computes sums of products."""

    operator: str = Field(description="The real system's own.")
    overflow: str = Field(description="What becomes of a sum that i32 does not hold, unless asked otherwise.")
    scheme: str = Field(default="", description="What scales the sums; without it they are dequantized and quantized.")
    factor: str = Field(default="", description="How the factor is formed, where not as the scheme says.")
    accumulator: str = Field(default="", description="What is summed in without a bias, where not what operands need.")
    variants: dict[str, ProductRule] = Field(
        description="Rules that replace this one: `batched` for rhs with batch dimensions, `i64` for sums of 64 bits, "
        "`undelegated i32` for sums of 32 bits where an operand has more than 8 or a signed rhs zero points, "
        "`undelegated i32 per_axis` for such sums with several scales of rhs."
    )


class AdditionRule(ReplyModel):
    """How a profile adds two quantized tensors."""

    operator: str = Field(description="The real system's own.")
    addition: str = Field(description="fixed_point, rescale, common_scale, to_output_scale or through_real.")
    scheme: str = Field(default="", description="Of the multipliers, where there are any.")


class Profile(ReplyModel):
    """A named arithmetic contract."""

    name: str
    title: str
    summary: str
    source: str
    operations: dict[str, OperationRule]
    products: dict[str, ProductRule] = Field(
        default=ABSENT, description="matmul and conv2d, where the profile defines them."
    )
    add: AdditionRule = Field(default=ABSENT, description="add, where the profile defines it.")
    casts: CastRule = Field(default=ABSENT, description="Casts between floats, where the profile defines them.")


class ProfileList(ReplyModel):
    """All profiles."""

    profiles: list[Profile]


class Info(ReplyModel):
    """What is running, and its limits."""

    name: str
    version: str
    python: str
    packages: dict[str, str] = Field(description="Versions of the packages that compute.")
    machine: str
    threads: Int32
    kernels: Int32 = Field(description="Kernels compiled.")
    profiles: list[str]
    schemes: list[str]
    limits: Limits


class Health(ReplyModel):
    """Whether the service takes work."""

    status: HealthStatus


class FieldProblem(ReplyModel):
    """One wrong field."""

    pointer: str = Field(description="JSON pointer (RFC 6901) into the body; for a query parameter, to its name.")
    code: str
    detail: str
    offset: Int32 = Field(default=0, description="Index of the wrong character, where it is a type text that is wrong.")


class Problem(ReplyModel):
    """An error (RFC 9457). `code` is stable; GET the `type` for an explanation."""

    type: str
    title: str
    status: Int32
    detail: str
    code: str
    errors: list[FieldProblem] = Field(default=[])
    error: str = Field(default="", description="Under /v2: the detail, where clients of that protocol look for it.")
    offset: Int32 = Field(
        default=0,
        description="Index of the wrong character in a type text or a module.",
    )
    line: Int32 = Field(default=0, description="Line of a module, from 1.")
    column: Int32 = Field(default=0, description="Column of a module, from 1.")
    caret: str = Field(default="", description="The text around the offset, and a caret under the character.")
    hint: str = Field(default="", description="The likely intention.")
    index: Int64 = Field(default=0, description="Flat row-major index of the element at fault.")
    limit: Int64 = Field(default=0, description="The limit that was passed.")
    request_id: str


class ProblemExplanation(ReplyModel):
    """What a problem's code means."""

    code: str
    status: Int32
    title: str
    explanation: str
