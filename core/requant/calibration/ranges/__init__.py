"""From a range of reals to scale and zero point, in the rules of each system.

`range_rule_named` finds a rule; its `derive_all` takes arrays of ranges, one for each channel or block. Every rule
states its formula and where it is from.
"""

from __future__ import annotations

from collections.abc import Mapping

from requant.calibration.ranges.litert import LITERT, LITERT_CONVERTER, LITERT_HYBRID
from requant.calibration.ranges.mlir import MLIR
from requant.calibration.ranges.onednn import ONEDNN
from requant.calibration.ranges.onnx import (
    ONNX_DYNAMIC,
    ONNX_DYNAMIC_FUNCTION,
    ONNX_DYNAMIC_REFERENCE,
    ONNXRUNTIME,
    ONNXRUNTIME_BLOCKED,
)
from requant.calibration.ranges.rule import RangeOptions, RangeParameters, RangeRule
from requant.calibration.ranges.tensorflow import LITERT_FAKE_QUANT, TF_FAKE_QUANT
from requant.calibration.ranges.torch import TORCH, TORCH_DECOMPOSED, TORCH_OBSERVER, TORCH_PER_TOKEN
from requant.errors.names import entry_named

__all__ = ["RANGE_RULES", "RangeOptions", "RangeParameters", "RangeRule", "range_rule_named"]

RANGE_RULES: Mapping[str, RangeRule] = {
    rule.name: rule
    for rule in (
        LITERT,
        LITERT_CONVERTER,
        LITERT_HYBRID,
        LITERT_FAKE_QUANT,
        TF_FAKE_QUANT,
        ONNXRUNTIME,
        ONNXRUNTIME_BLOCKED,
        ONNX_DYNAMIC,
        ONNX_DYNAMIC_REFERENCE,
        ONNX_DYNAMIC_FUNCTION,
        TORCH,
        TORCH_OBSERVER,
        TORCH_DECOMPOSED,
        TORCH_PER_TOKEN,
        ONEDNN,
        MLIR,
    )
}


def range_rule_named(name: str) -> RangeRule:
    """Return the rule of that name, or raise UnknownNameError listing those that exist."""
    return entry_named(RANGE_RULES, name, "range rule")
