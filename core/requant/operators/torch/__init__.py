"""PyTorch's operators of quantization."""

from __future__ import annotations

from requant.operators.description import Operator
from requant.operators.torch import choose_qparams, element_type, fake_quant, quantize, rows

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
    quantize.QUANTIZE_PER_TENSOR_TENSOR2,
    quantize.DEQUANTIZE_PER_TENSOR_TENSOR2,
    rows.QUANTIZE_PER_TOKEN,
    rows.DEQUANTIZE_PER_TOKEN,
    rows.QUANTIZE_PER_CHANNEL_GROUP,
    rows.DEQUANTIZE_PER_CHANNEL_GROUP,
    choose_qparams.CHOOSE_QPARAMS,
    choose_qparams.CHOOSE_QPARAMS_SYMMETRIC,
    choose_qparams.CHOOSE_QPARAMS_PER_TOKEN,
    choose_qparams.CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC,
    fake_quant.FAKE_QUANT_PER_CHANNEL,
    element_type.CONVERT_ELEMENT_TYPE,
)
