"""A profile as its page shows it: everything that is needed to write its arithmetic again."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from core.convert.float_encoding import encoder
from core.convert.small_floats import small_float
from core.profiles import OperationRule, profile_named
from core.profiles.cast import FORMULA, SCALE, CastRule
from core.profiles.integer_rule import AddRule, ProductRule
from service.json_api.schemas import base as schemas

# overflow, infinity and NaN, each with its negative, and -0, in the order of the fields of SpecialCodes.
_SPECIAL = np.array(
    [0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x80000000], "<u4"
).view("<f4")  # fmt: skip


def profile_page(name: str) -> schemas.Profile:
    """Return the page of the profile of that name, or raise UnknownNameError."""
    profile = profile_named(name)
    more: dict[str, Any] = {} if profile.casts is None else {"casts": _casts(profile.casts)}
    if profile.products:
        more["products"] = {operation: _product(rule) for operation, rule in profile.products.items()}
    if profile.addition is not None:
        more["add"] = schemas.AdditionRule(**_stated(profile.addition))
    return schemas.Profile(
        name=profile.name,
        title=profile.title,
        summary=profile.summary,
        source=profile.source,
        operations={str(operation): _rule(rule) for operation, rule in profile.operations.items()},
        **more,
    )


def _rule(rule: OperationRule) -> schemas.OperationRule:
    stated = {key: value for key, value in asdict(replace(rule, variants={})).items() if value is not None}
    variants = {key: _rule(variant) for key, variant in rule.variants.items()}
    return schemas.OperationRule(**{**stated, "variants": variants})


def _stated(rule: ProductRule | AddRule) -> dict[str, str]:
    """Return the fields of a rule that say anything, without its variants."""
    return {
        field.name: str(value)
        for field in fields(rule)
        if field.name != "variants" and (value := getattr(rule, field.name)) is not None
    }


def _product(rule: ProductRule) -> schemas.ProductRule:
    return schemas.ProductRule(
        **_stated(rule), variants={name: _product(variant) for name, variant in rule.variants.items()}
    )


def _casts(rule: CastRule) -> schemas.CastRule:
    once = ", ".join(rule.f64_once)
    f64 = f"rounded once to {once}; to others by way of f32" if once else "by way of f32"
    words = {name: text for name in ("scale", "notes") if (text := getattr(rule, name))}
    return schemas.CastRule(
        authority=rule.authority,
        formula=FORMULA,
        f64=f64 if "f64" in rule.sources else "not taken",
        saturation=rule.saturation,
        nan=rule.nan,
        scale_roundings=[str(rounding) for rounding in rule.scale_roundings] if SCALE in rule.formats else [],
        sources=list(rule.sources),
        formats=[_format(rule, name) for name in rule.formats],
        **words,
    )


def _format(rule: CastRule, name: str) -> schemas.CastFormat:
    format_ = small_float(name)
    chosen = rule.chosen_saturation and format_.width == 8
    return schemas.CastFormat(
        type=name,
        exponent_bits=format_.exponent_bits,
        mantissa_bits=format_.mantissa_bits,
        bias=format_.bias,
        largest=repr(format_.largest),
        largest_code=_code(format_.largest_code, format_.width),
        codes=_special(rule, name, None),
        **({"saturate_false": _special(rule, name, False)} if chosen else {}),
    )


def _special(rule: CastRule, name: str, saturate: bool | None) -> schemas.SpecialCodes:
    format_ = small_float(name)
    codes = np.empty(_SPECIAL.size, format_.dtype)
    encoder(rule, name, saturate=saturate).encode(_SPECIAL, codes, 0, np.zeros(4, np.int64))
    texts = (_code(code, format_.width) for code in codes.tolist())
    return schemas.SpecialCodes(**dict(zip(schemas.SpecialCodes.model_fields, texts, strict=True)))


def _code(code: int, width: int) -> str:
    return f"0x{code:0{(width + 3) // 4}X}"
