"""MLIR: what the pass lower-quant-ops emits for quant.qcast and quant.dcast. Truncation, and no saturation."""

from __future__ import annotations

from requant.formats.rounding import Rounding
from requant.formats.rules import Difference, Overflow
from requant.profiles.rule import (
    NO_NAN,
    NanResult,
    Operation,
    OperationRule,
    Profile,
    Steps,
    TypeRules,
    ZeroPoint,
    ZeroPointRange,
)

_EXPRESSED = ("f16", "bf16", "f32", "f64")
_GRANULARITIES = ("per_tensor", "per_axis", "sub_channel")

MLIR = Profile(
    name="mlir",
    title="MLIR lower-quant-ops",
    summary="quant.qcast and quant.dcast as MLIR's lower-quant-ops lowers them: truncation, no saturation. What it "
    "leaves as poison is an error here. Zero points are truncated to the storage width.",
    source="LLVM 24, quant dialect, lower-quant-ops",
    operations={
        Operation.QUANTIZE: OperationRule(
            formula="clamp(RTZ(E(E(x / E(s)) + E(z))), lo, hi)",
            precision="true division, then addition, each rounded to the expressed type E",
            rounding=Rounding.TOWARD_ZERO,
            zero_point=ZeroPoint.BEFORE_ROUNDING,
            saturation="an error unless the truncated value fits the storage type; then clamped to narrower bounds",
            nan="an error, as infinities are",
            steps=Steps.EXPRESSED,
            overflow=Overflow.UNDEFINED,
            nan_result=NanResult.ERROR,
            expressed=_EXPRESSED,
            zero_points=ZeroPointRange.TRUNCATED,
            granularities=_GRANULARITIES,
            type_rules=TypeRules.SIGNLESS,
        ),
        Operation.DEQUANTIZE: OperationRule(
            formula="E(E(E(q) - E(z)) * E(s))",
            precision="each conversion and step rounded to the expressed type E",
            rounding=Rounding.NEAREST_EVEN,
            zero_point=ZeroPoint.BEFORE_SCALING,
            saturation="none",
            nan=NO_NAN,
            steps=Steps.EXPRESSED,
            difference=Difference.FLOATS,
            expressed=_EXPRESSED,
            zero_points=ZeroPointRange.TRUNCATED,
            granularities=_GRANULARITIES,
            type_rules=TypeRules.SIGNLESS,
        ),
    },
)

PROFILES = (MLIR,)
