"""Bit-exact quantization arithmetic on numpy arrays, and on whole checkpoints.

>>> import requant
>>> requant.quantize([-0.25, 0.25, 0.75, 100.0], "!quant.uniform<i8:f32, 0.5:3>", profile="onnx")
array([  3,   3,   5, 127], dtype=int8)

The bits are those of the HTTP service (`requant serve`). Names are imported when they are first used.
"""

from __future__ import annotations

import platform
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from requant.version import VERSION as VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from requant.arrays.comparison import compare
    from requant.arrays.conversions import dequantize, quantize, requantize
    from requant.arrays.parameters import Parameters, parameters, parameters_from_range
    from requant.arrays.types import parse_type, print_type, quantized_type
    from requant.checkpoint.run.run import RunReport
    from requant.checkpoints import dequantize_checkpoint, quantize_checkpoint, repack_checkpoint
    from requant.comparison.comparison import ComparisonReport
    from requant.errors import RequantError
    from requant.evaluation import evaluate
    from requant.functions import *  # noqa: F403 - what is described: functions.pyi
    from requant.plan.plan import Report
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
    "evaluate",
    "parameters",
    "parameters_from_range",
    "parse_type",
    "print_type",
    "quantize",
    "quantize_checkpoint",
    "quantized_type",
    "repack_checkpoint",
    "requantize",
    "verify_checkpoint",
]

_MODULES = {
    "ComparisonReport": "requant.comparison.comparison",
    "Parameters": "requant.arrays.parameters",
    "Report": "requant.plan.plan",
    "RequantError": "requant.errors",
    "RunReport": "requant.checkpoint.run.run",
    "compare": "requant.arrays.comparison",
    "dequantize": "requant.arrays.conversions",
    "dequantize_checkpoint": "requant.checkpoints",
    "diff_checkpoints": "requant.verification",
    "evaluate": "requant.evaluation",
    "parameters": "requant.arrays.parameters",
    "parameters_from_range": "requant.arrays.parameters",
    "parse_type": "requant.arrays.types",
    "print_type": "requant.arrays.types",
    "quantize": "requant.arrays.conversions",
    "quantize_checkpoint": "requant.checkpoints",
    "repack_checkpoint": "requant.checkpoints",
    "quantized_type": "requant.arrays.types",
    "requantize": "requant.arrays.conversions",
    "verify_checkpoint": "requant.verification",
}


if sys.byteorder != "little":
    raise ImportError(f"Requant needs a little-endian CPU, as tensors are little-endian; {platform.machine()} is not")
if sys.platform == "win32" or (sys.platform == "darwin" and platform.machine() == "x86_64"):
    raise ImportError(f"Requant does not support {platform.platform()}: see docs/platforms.md for what it runs on")


# A checker of types knows all names from the imports above, and tells of any other.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module 'requant' has no attribute '{name}'")
        # The others are operations, of which only their descriptions know.
        module = import_module(_MODULES.get(name, "requant.functions"))
        try:
            found = globals()[name] = getattr(module, name)
        except AttributeError:
            raise AttributeError(f"module 'requant' has no attribute '{name}'") from None
        return found


def __dir__() -> list[str]:
    from requant.functions import FUNCTIONS, SYSTEMS

    return sorted([*__all__, *FUNCTIONS, *SYSTEMS])
