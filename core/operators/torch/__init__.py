"""PyTorch's operators of quantization."""

from __future__ import annotations

from core.operators.description import Operator
from core.operators.torch import quantize

OPERATORS: tuple[Operator, ...] = (
    quantize.QUANTIZE_PER_TENSOR,
    quantize.QUANTIZE_PER_CHANNEL,
    quantize.DEQUANTIZE,
    quantize.FAKE_QUANTIZE_PER_TENSOR,
    quantize.FAKE_QUANTIZE_PER_CHANNEL,
    quantize.DECOMPOSED_QUANTIZE_PER_TENSOR,
    quantize.DECOMPOSED_QUANTIZE_PER_TENSOR_TENSOR,
    quantize.DECOMPOSED_QUANTIZE_PER_CHANNEL,
    quantize.DECOMPOSED_DEQUANTIZE_PER_TENSOR,
    quantize.DECOMPOSED_DEQUANTIZE_PER_TENSOR_TENSOR,
    quantize.DECOMPOSED_DEQUANTIZE_PER_CHANNEL,
)
