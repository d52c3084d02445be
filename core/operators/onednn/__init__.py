"""oneDNN Graph's operators of quantization."""

from __future__ import annotations

from core.operators.description import Operator
from core.operators.onednn.dequantize import DEQUANTIZE, DYNAMIC_DEQUANTIZE
from core.operators.onednn.quantize import DYNAMIC_QUANTIZE, QUANTIZE

OPERATORS: tuple[Operator, ...] = (QUANTIZE, DEQUANTIZE, DYNAMIC_QUANTIZE, DYNAMIC_DEQUANTIZE)
