"""LiteRT's operators."""

from __future__ import annotations

from requant.operators.description import Operator
from requant.operators.litert.conversions import DEQUANTIZE, QUANTIZE
from requant.operators.litert.elementwise import MUL, PRELU, SUB
from requant.operators.litert.movement import CONCATENATION, PAD
from requant.operators.litert.pools import AVERAGE_POOL_2D, MAX_POOL_2D
from requant.operators.litert.products import BATCH_MATMUL, TRANSPOSE_CONV
from requant.operators.litert.reductions import MEAN, SUM
from requant.operators.litert.resize import RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR
from requant.operators.litert.softmax import SOFTMAX
from requant.operators.litert.unary import HARD_SWISH, LEAKY_RELU, LOGISTIC, RELU, RELU6, RELU_N1_TO_1, TANH

OPERATORS: tuple[Operator, ...] = (
    QUANTIZE,
    DEQUANTIZE,
    MUL,
    SUB,
    AVERAGE_POOL_2D,
    MAX_POOL_2D,
    LOGISTIC,
    TANH,
    RELU,
    RELU6,
    RELU_N1_TO_1,
    LEAKY_RELU,
    PRELU,
    HARD_SWISH,
    SOFTMAX,
    MEAN,
    SUM,
    CONCATENATION,
    PAD,
    RESIZE_BILINEAR,
    RESIZE_NEAREST_NEIGHBOR,
    BATCH_MATMUL,
    TRANSPOSE_CONV,
)
