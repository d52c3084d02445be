"""ONNX's operators, each with all of its versions."""

from __future__ import annotations

from requant.operators.description import Operator
from requant.operators.onnx.conv_integer import CONV_INTEGER
from requant.operators.onnx.dequantize_linear import DEQUANTIZE_LINEAR
from requant.operators.onnx.dynamic_quantize_linear import DYNAMIC_QUANTIZE_LINEAR
from requant.operators.onnx.matmul_integer import MATMUL_INTEGER
from requant.operators.onnx.qlinear_conv import QLINEAR_CONV
from requant.operators.onnx.qlinear_matmul import QLINEAR_MATMUL
from requant.operators.onnx.quantize_linear import QUANTIZE_LINEAR

OPERATORS: tuple[Operator, ...] = (
    QUANTIZE_LINEAR,
    DEQUANTIZE_LINEAR,
    DYNAMIC_QUANTIZE_LINEAR,
    MATMUL_INTEGER,
    CONV_INTEGER,
    QLINEAR_MATMUL,
    QLINEAR_CONV,
)
