"""onnxruntime's own operators, of the domain com.microsoft."""

from __future__ import annotations

from requant.operators.description import Operator
from requant.operators.onnxruntime.elementwise import QLINEAR_ADD, QLINEAR_MUL
from requant.operators.onnxruntime.pools import QLINEAR_AVERAGE_POOL, QLINEAR_GLOBAL_AVERAGE_POOL
from requant.operators.onnxruntime.products import (
    DYNAMIC_QUANTIZE_MATMUL,
    MATMUL_INTEGER_TO_FLOAT,
    MATMUL_N_BITS,
    QGEMM,
)
from requant.operators.onnxruntime.softmax import QLINEAR_SOFTMAX
from requant.operators.onnxruntime.tables import QLINEAR_CONCAT, QLINEAR_LEAKY_RELU, QLINEAR_SIGMOID, QLINEAR_WHERE

OPERATORS: tuple[Operator, ...] = (
    QLINEAR_ADD,
    QLINEAR_MUL,
    QLINEAR_SIGMOID,
    QLINEAR_LEAKY_RELU,
    QLINEAR_CONCAT,
    QLINEAR_WHERE,
    QLINEAR_GLOBAL_AVERAGE_POOL,
    QLINEAR_AVERAGE_POOL,
    QLINEAR_SOFTMAX,
    QGEMM,
    MATMUL_INTEGER_TO_FLOAT,
    DYNAMIC_QUANTIZE_MATMUL,
    MATMUL_N_BITS,
)
