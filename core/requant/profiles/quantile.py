"""Quantile tables as storage: a definition of our own, because no system executes the type."""

from __future__ import annotations

from requant.formats.rounding import Rounding
from requant.profiles.rule import (
    NO_NAN,
    Operation,
    OperationRule,
    Profile,
    Steps,
    ZeroPoint,
    ZeroPointRange,
)

_STORAGES = ("quantile",)
_EXPRESSED = ("f16", "bf16", "f32", "f64")
_ENTRIES = (
    "T(q) is the table's entry for code q, the first for the lowest code, rounded (RNE) to the value type of the "
    "quantile and then to E; an entry beyond either, or a zero point beyond E, is refused"
)

QUANTILE = Profile(
    name="quantile",
    title="Quantile tables",
    summary="quantize and dequantize for !quant.uniform with a !quant.quantile as its storage: stored codes index the "
    "table. MLIR defines the type and no system executes it, so this arithmetic is a definition of our own.",
    source="LLVM 24, quant dialect, QuantileType; the arithmetic is Requant's",
    operations={
        Operation.QUANTIZE: OperationRule(
            formula="the code q from lo to hi whose T(q) is nearest to y = E(E(x / E(s)) + E(z)), compared exactly; of "
            "two values that are equally near the smaller, of equal values the lowest code",
            precision=f"true division, then addition, each rounded to the expressed type E; {_ENTRIES}",
            rounding=Rounding.NEAREST_DOWN,
            zero_point=ZeroPoint.BEFORE_ROUNDING,
            saturation="y beyond the largest or smallest value gives its code, infinities too, and counts as saturated",
            nan="lo",
            steps=Steps.EXPRESSED,
            expressed=_EXPRESSED,
            storages=_STORAGES,
            zero_points=ZeroPointRange.INT32,
        ),
        Operation.DEQUANTIZE: OperationRule(
            formula="E(E(T(q) - E(z)) * E(s))",
            precision=f"subtraction, then multiplication, each rounded to the expressed type E; {_ENTRIES}",
            rounding=Rounding.NEAREST_EVEN,
            zero_point=ZeroPoint.BEFORE_SCALING,
            saturation="none; a code that the table does not have is an error",
            nan=NO_NAN,
            steps=Steps.EXPRESSED,
            expressed=_EXPRESSED,
            storages=_STORAGES,
            zero_points=ZeroPointRange.INT32,
        ),
    },
)

PROFILES = (QUANTILE,)
