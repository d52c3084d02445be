"""Bit-exact quantization arithmetic on numpy arrays, and on whole checkpoints.

>>> import requant
>>> requant.quantize([-0.25, 0.25, 0.75, 100.0], "!quant.uniform<i8:f32, 0.5:3>", profile="onnx")
array([  3,   3,   5, 127], dtype=int8)

The bits are those of the HTTP service (`requant serve`). Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import core

if TYPE_CHECKING:
    from core.checkpoint.run.run import RunReport
    from core.compare.comparison import ComparisonReport
    from core.errors import RequantError
    from core.plan.report import Report
    from requant.arrays.comparison import compare
    from requant.arrays.conversions import dequantize, quantize, requantize
    from requant.arrays.parameters import Parameters, parameters, parameters_from_range
    from requant.arrays.types import parse_type, print_type, quantized_type
    from requant.checkpoints import dequantize_checkpoint, quantize_checkpoint
    from requant.verification import diff_checkpoints, verify_checkpoint

__all__ = [
    "ComparisonReport",
    "Parameters",
    "Report",
    "RequantError",
    "RunReport",
    "compare",
    "dequantize",
    "dequantize_checkpoint",
    "diff_checkpoints",
    "parameters",
    "parameters_from_range",
    "parse_type",
    "print_type",
    "quantize",
    "quantize_checkpoint",
    "quantized_type",
    "requantize",
    "verify_checkpoint",
]

_MODULES = {
    "ComparisonReport": "core.compare.comparison",
    "Parameters": "requant.arrays.parameters",
    "Report": "core.plan.report",
    "RequantError": "core.errors",
    "RunReport": "core.checkpoint.run.run",
    "compare": "requant.arrays.comparison",
    "dequantize": "requant.arrays.conversions",
    "dequantize_checkpoint": "requant.checkpoints",
    "diff_checkpoints": "requant.verification",
    "parameters": "requant.arrays.parameters",
    "parameters_from_range": "requant.arrays.parameters",
    "parse_type": "requant.arrays.types",
    "print_type": "requant.arrays.types",
    "quantize": "requant.arrays.conversions",
    "quantize_checkpoint": "requant.checkpoints",
    "quantized_type": "requant.arrays.types",
    "requantize": "requant.arrays.conversions",
    "verify_checkpoint": "requant.verification",
}

_CORE, _HERE = (Path(each).resolve() for each in (core.__file__ or ".", __file__))
if _CORE.parents[1] != _HERE.parents[1]:
    raise ImportError(f"Requant's package `core` is shadowed by another package of that name: {_CORE.parent}")


# A checker of types knows all names from the imports above, and tells of any other.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'requant' has no attribute '{name}'")
        found = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
