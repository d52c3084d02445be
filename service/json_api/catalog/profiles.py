"""The profiles: every arithmetic contract in words and formulas, enough to implement it again."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from core import profiles
from core.convert.float_encoding import encoder
from core.convert.small_floats import small_float
from core.errors import UnknownNameError
from core.profiles import cast, integer_rule
from service.http.models import ABSENT, Int32, ReplyModel
from service.http.openapi_operation import static_operation
from service.http.problems import requant_problem
from service.http.query import no_query
from service.http.static_content import static_json

router = APIRouter(tags=["meta"], dependencies=[Depends(no_query)])

# overflow, infinity and NaN, each with its negative, and -0, in the order of the fields of SpecialCodes.
_SPECIAL = np.array(
    [0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x80000000], "<u4"
).view("<f4")  # fmt: skip


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


def profile_page(name: str) -> Profile:
    """Return the page of the profile of that name, or raise UnknownNameError."""
    profile = profiles.profile_named(name)
    more: dict[str, Any] = {} if profile.casts is None else {"casts": _casts(profile.casts)}
    if profile.products:
        more["products"] = {operation: ProductRule(**_stated(rule)) for operation, rule in profile.products.items()}
    if profile.addition is not None:
        more["add"] = AdditionRule(**_stated(profile.addition))
    return Profile(
        name=profile.name,
        title=profile.title,
        summary=profile.summary,
        source=profile.source,
        operations={str(operation): OperationRule(**_stated(rule)) for operation, rule in profile.operations.items()},
        **more,
    )


def _stated(rule: profiles.OperationRule | integer_rule.ProductRule | integer_rule.AddRule) -> dict[str, Any]:
    """Return the fields of a rule, and of its variants, that are not None."""
    stated = {each.name: value for each in fields(rule) if (value := getattr(rule, each.name)) is not None}
    if "variants" in stated:
        stated["variants"] = {name: _stated(variant) for name, variant in stated["variants"].items()}
    return stated


def _casts(rule: cast.CastRule) -> CastRule:
    once = ", ".join(rule.f64_once)
    f64 = f"rounded once to {once}; to others by way of f32" if once else "by way of f32"
    words = {name: text for name in ("scale", "notes") if (text := getattr(rule, name))}
    return CastRule(
        authority=rule.authority,
        formula=cast.FORMULA,
        f64=f64 if "f64" in rule.sources else "not taken",
        saturation=rule.saturation,
        nan=rule.nan,
        scale_roundings=[str(rounding) for rounding in rule.scale_roundings] if cast.SCALE in rule.formats else [],
        sources=list(rule.sources),
        formats=[_format(rule, name) for name in rule.formats],
        **words,
    )


def _format(rule: cast.CastRule, name: str) -> CastFormat:
    format_ = small_float(name)
    chosen = rule.chosen_saturation and format_.width == 8
    return CastFormat(
        type=name,
        exponent_bits=format_.exponent_bits,
        mantissa_bits=format_.mantissa_bits,
        bias=format_.bias,
        largest=repr(format_.largest),
        largest_code=_code(format_.largest_code, format_.width),
        codes=_special(rule, name, None),
        **({"saturate_false": _special(rule, name, False)} if chosen else {}),
    )


def _special(rule: cast.CastRule, name: str, saturate: bool | None) -> SpecialCodes:
    format_ = small_float(name)
    codes = np.empty(_SPECIAL.size, format_.dtype)
    encoder(rule, name, saturate=saturate).encode(_SPECIAL, codes, 0, np.zeros(4, np.int64))
    texts = (_code(code, format_.width) for code in codes.tolist())
    return SpecialCodes(**dict(zip(SpecialCodes.model_fields, texts, strict=True)))


def _code(code: int, width: int) -> str:
    return f"0x{code:0{(width + 3) // 4}X}"


_PAGES = {name: static_json(partial(profile_page, name)) for name in profiles.PROFILES}
_LIST = static_json(lambda: ProfileList(profiles=[profile_page(name) for name in profiles.PROFILES]))


@router.get("/v1/profiles", **static_operation("listProfiles", ProfileList))
async def list_profiles(request: Request) -> Response:
    """List the arithmetic contracts, each in words and formulas."""
    return await _LIST.reply(request)


@router.get("/v1/profiles/{name}", **static_operation("getProfile", Profile, 404))
async def get_profile(request: Request, name: str) -> Response:
    """Say what one arithmetic contract is."""
    try:
        profile = profiles.profile_named(name)
    except UnknownNameError as error:
        return requant_problem(request, error, status=404)
    return await _PAGES[profile.name].reply(request)
