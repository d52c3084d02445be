"""LiteRT's operators of quantization."""

from __future__ import annotations

from core.operators.description import Operator
from core.operators.litert.quantize import DEQUANTIZE, QUANTIZE

OPERATORS: tuple[Operator, ...] = (QUANTIZE, DEQUANTIZE)
