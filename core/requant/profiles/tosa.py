"""TOSA: RESCALE, between integers only."""

from __future__ import annotations

from dataclasses import replace

from requant.profiles.rule import Addition, AddRule, Operation, ProductRule, Profile, SumOverflow, scheme_rule
from requant.schemes import tosa as schemes

_STORAGES = ("i8", "u8", "i16", "u16", "i32")


def _products(scheme: str) -> dict[str, ProductRule]:
    """An operator that accumulates, and RESCALE: of 48 bits, which are the sums of 16-bit inputs, without scale32."""
    rules = {}
    for operation, operator in (("matmul", "MATMUL"), ("conv2d", "CONV2D, DEPTHWISE_CONV2D")):
        rule = ProductRule(operator=f"{operator} and RESCALE", overflow=SumOverflow.ERROR, scheme=scheme)
        rules[operation] = replace(rule, variants={"i64": replace(rule, scheme=schemes.TOSA_SCALE16.name)})
    return rules


TOSA = Profile(
    name="tosa",
    title="TOSA RESCALE, SINGLE_ROUND",
    summary="RESCALE with scale32 and SINGLE_ROUND. TOSA does not quantize from float.",
    source="TOSA 1.0, reference model 1.1.0d",
    operations={Operation.REQUANTIZE: scheme_rule(schemes.TOSA, storages=_STORAGES, rescale=True)},
    products=_products(schemes.TOSA.name),
    addition=AddRule(operator="RESCALE, ADD, RESCALE", addition=Addition.RESCALE, scheme=schemes.TOSA.name),
)

TOSA_DOUBLE_ROUND = Profile(
    name="tosa_double_round",
    title="TOSA RESCALE, DOUBLE_ROUND",
    summary="RESCALE with scale32 and DOUBLE_ROUND. TOSA does not quantize from float.",
    source="TOSA 1.0, reference model 1.1.0d, extension EXT-DOUBLEROUND",
    operations={Operation.REQUANTIZE: scheme_rule(schemes.TOSA_DOUBLE_ROUND, storages=_STORAGES, rescale=True)},
    products=_products(schemes.TOSA_DOUBLE_ROUND.name),
    addition=AddRule(
        operator="RESCALE, ADD, RESCALE", addition=Addition.RESCALE, scheme=schemes.TOSA_DOUBLE_ROUND.name
    ),
)

PROFILES = (
    TOSA,
    TOSA_DOUBLE_ROUND,
)
