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

from requant import profiles
from requant.convert.float_encoding import encoder, saturates
from requant.errors import UnknownNameError
from requant.formats.elements import FLOATS
from requant.profiles import cast
from requant.profiles import rule as rules
from requant_service.http.models import ABSENT, Int32, ReplyModel
from requant_service.http.openapi_operation import static_operation
from requant_service.http.problems import error_response
from requant_service.http.query import no_query
from requant_service.http.responses import static_json
from requant_service.json_api.catalog.conformance import (
    Conformance,
    EqualSystem,
    conformance_of,
    systems_equal_to,
)

router = APIRouter(tags=["catalogs"], dependencies=[Depends(no_query)])

# overflow, infinity and NaN, each with its negative, and -0, in the order of the fields of SpecialCodes.
_SPECIAL = np.array(
    [0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x80000000], "<u4"
).view("<f4")  # fmt: skip
_SPECIAL_F64 = np.array(
    [
        0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000,
        0xFFF8000000000000, 0x8000000000000000,
    ], "<u8"
).view("<f8")  # fmt: skip


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
    """The codes of special f32 values in a format, to f32 of f64 values, in hexadecimal."""

    overflow: str = Field(description="A finite value beyond the largest one.")
    negative_overflow: str
    infinity: str
    negative_infinity: str
    nan: str = Field(description="0x7FC00000; `error` if NaN is one.")
    negative_nan: str = Field(description="0xFFC00000.")
    negative_zero: str


class CastFormat(ReplyModel):
    """A float that can be cast to: its range, the roundings, and what a profile does with values outside the range."""

    type: str
    exponent_bits: Int32
    mantissa_bits: Int32
    bias: Int32
    largest: str = Field(description="The largest finite value.")
    largest_code: str
    roundings: list[str] = Field(description="The roundings available, the default first.")
    codes: SpecialCodes = Field(description="Under the profile's default.")
    saturate_false: SpecialCodes = Field(
        default=ABSENT, description="With saturate = false, if the profile offers the choice and its default is true."
    )
    saturate_true: SpecialCodes = Field(
        default=ABSENT, description="With saturate = true, if the profile offers the choice and its default is false."
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
        "`undelegated i32` for sums of 32 bits where an operand has more than 8, a signed rhs zero points, or its "
        "numbers of 4 or 2 bits no kernel of XNNPACK, "
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
    conformance: dict[str, Conformance] = Field(
        default=ABSENT,
        description="By operation, what was compared with real systems. Absent from the list of profiles.",
    )
    equals: list[EqualSystem] = Field(
        default=ABSENT,
        description="The systems and versions whose bits it has. Absent from the list of profiles.",
    )


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


def conforming_profile_page(name: str) -> Profile:
    """Return the page of a profile with what was compared with the systems that it equals."""
    return profile_page(name).model_copy(
        update={"conformance": conformance_of("profile", name), "equals": systems_equal_to("profile", name)}
    )


def _stated(rule: profiles.OperationRule | rules.ProductRule | rules.AddRule) -> dict[str, Any]:
    """Return the fields of a rule, and of its variants, that are not None."""
    stated = {each.name: value for each in fields(rule) if (value := getattr(rule, each.name)) is not None}
    if "nan_result" in stated:
        # The name that clients know.
        stated["missing"] = stated.pop("nan_result")
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
        scale_roundings=_roundings(rule, cast.SCALE) if cast.SCALE in rule.formats else [],
        sources=list(rule.sources),
        formats=[_format(rule, name) for name in rule.formats],
        **words,
    )


def _roundings(rule: cast.CastRule, target: str) -> list[str]:
    return [str(rounding) for rounding in rule.roundings_to(target)]


def _format(rule: cast.CastRule, name: str) -> CastFormat:
    format_ = FLOATS[name]
    other = not saturates(rule, format_, None)
    chosen = {f"saturate_{str(other).lower()}": _special(rule, name, other)} if name in rule.chosen_saturation else {}
    return CastFormat(
        type=name,
        exponent_bits=format_.exponent_bits,
        mantissa_bits=format_.mantissa_bits,
        bias=format_.bias,
        largest=repr(format_.largest),
        largest_code=_code(format_.largest_code, format_.width),
        roundings=_roundings(rule, name),
        codes=_special(rule, name, None),
        **chosen,
    )


def _special(rule: cast.CastRule, name: str, saturate: bool | None) -> SpecialCodes:
    format_ = FLOATS[name]
    codes = np.empty(_SPECIAL.size, format_.code_dtype)
    # To f32 it is f64 that is cast, in which the first two are no overflow.
    source, values = ("f64", _SPECIAL_F64) if name == "f32" else ("f32", _SPECIAL)
    encoder(rule, name, source, saturate=saturate).encode(values, codes, 0, np.zeros(4, np.int64))
    texts = dict(zip(SpecialCodes.model_fields, (_code(code, format_.width) for code in codes.tolist()), strict=True))
    if name in cast.FINITE and rule.finite_nan is cast.FiniteNan.ERROR:
        texts |= {"nan": "error", "negative_nan": "error"}
    return SpecialCodes(**texts)


def _code(code: int, width: int) -> str:
    return f"0x{code:0{(width + 3) // 4}X}"


_PAGES = {name: static_json(partial(conforming_profile_page, name)) for name in profiles.PROFILES}
_LIST = static_json(lambda: ProfileList(profiles=[profile_page(name) for name in profiles.PROFILES]))


@router.get("/v1/profiles", **static_operation("listProfiles", "List profiles", ProfileList, excerpt="profiles"))
async def list_profiles(request: Request) -> Response:
    """List the profiles: arithmetic contracts in words and formulas."""
    return await _LIST.response(request)


@router.get(
    "/v1/profiles/{name}",
    **static_operation("getProfile", "Describe a profile", Profile, 404, path={"name": "litert"}),
)
async def get_profile(request: Request, name: str) -> Response:
    """Describe one profile."""
    try:
        profile = profiles.profile_named(name)
    except UnknownNameError as error:
        return error_response(request, error, status=404)
    return await _PAGES[profile.name].response(request)
