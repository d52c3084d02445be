"""StableHLO's operators of quantization."""

from __future__ import annotations

from core.operators.description import Operator
from core.operators.stablehlo.uniform_quantize import UNIFORM_DEQUANTIZE, UNIFORM_QUANTIZE

OPERATORS: tuple[Operator, ...] = (UNIFORM_QUANTIZE, UNIFORM_DEQUANTIZE)
