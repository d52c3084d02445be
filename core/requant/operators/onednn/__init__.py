"""oneDNN Graph's operators of quantization."""

from __future__ import annotations

from requant.operators.description import Operator
from requant.operators.onednn.dequantize import DEQUANTIZE, DYNAMIC_DEQUANTIZE
from requant.operators.onednn.quantize import DYNAMIC_QUANTIZE, QUANTIZE

OPERATORS: tuple[Operator, ...] = (QUANTIZE, DEQUANTIZE, DYNAMIC_QUANTIZE, DYNAMIC_DEQUANTIZE)
