"""From a range of reals to scale and zero point, in the rules of each system.

`range_rule_named` finds a rule; its `derive_all` takes arrays of ranges, one for each channel or block. Every rule
states its formula and where it is from.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.errors.names import entry_named
from core.parameters.ranges.litert import LITERT, LITERT_CONVERTER, LITERT_HYBRID
from core.parameters.ranges.mlir import MLIR
from core.parameters.ranges.onednn import ONEDNN
from core.parameters.ranges.onnx import ONNX_DYNAMIC, ONNX_DYNAMIC_FUNCTION, ONNX_DYNAMIC_REFERENCE
from core.parameters.ranges.onnxruntime import ONNXRUNTIME, ONNXRUNTIME_BLOCKED
from core.parameters.ranges.rule import RangeOptions, RangeParameters, RangeRule
from core.parameters.ranges.tensorflow import LITERT_FAKE_QUANT, TF_FAKE_QUANT
from core.parameters.ranges.torch import TORCH
from core.parameters.ranges.torch_observers import TORCH_DECOMPOSED, TORCH_OBSERVER, TORCH_PER_TOKEN

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
