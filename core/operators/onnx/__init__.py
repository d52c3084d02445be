"""ONNX's operators, each with all of its versions."""

from __future__ import annotations

from core.operators.description import Operator
from core.operators.onnx.dequantize_linear import DEQUANTIZE_LINEAR
from core.operators.onnx.dynamic_quantize_linear import DYNAMIC_QUANTIZE_LINEAR
from core.operators.onnx.quantize_linear import QUANTIZE_LINEAR

OPERATORS: tuple[Operator, ...] = (QUANTIZE_LINEAR, DEQUANTIZE_LINEAR, DYNAMIC_QUANTIZE_LINEAR)
