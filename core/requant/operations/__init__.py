"""Our own operations, each described once. To add one, describe it in a file here and list it below."""

from __future__ import annotations

from collections.abc import Mapping

from requant.description import Operation, TensorOutput
from requant.operations.add import ADD
from requant.operations.bias import DERIVE_BIAS
from requant.operations.blocks import DEQUANTIZE_BLOCKS, QUANTIZE_BLOCKS
from requant.operations.call_vectors import call_vectors_operation
from requant.operations.compare import COMPARE
from requant.operations.conversions import CONVERSIONS
from requant.operations.equivalence import EQUIVALENCE
from requant.operations.fake_quantize import FAKE_QUANTIZE
from requant.operations.identify import identify_operation
from requant.operations.modules import LOWER
from requant.operations.multipliers import DERIVE_MULTIPLIER
from requant.operations.operators import operation_of
from requant.operations.parameters import DERIVE_FROM_RANGE, DERIVE_FROM_TENSOR
from requant.operations.parse_type import PARSE_TYPE
from requant.operations.products import CONV2D, MATMUL
from requant.operations.translate_type import TRANSLATE_TYPE
from requant.operators.registry import OPERATORS

_CALLED = (
    DERIVE_MULTIPLIER,
    COMPARE,
    QUANTIZE_BLOCKS,
    DEQUANTIZE_BLOCKS,
    FAKE_QUANTIZE,
    DERIVE_FROM_RANGE,
    DERIVE_FROM_TENSOR,
    DERIVE_BIAS,
    MATMUL,
    CONV2D,
    ADD,
)
# What may be asked of calls of them, and of operators: which rules gave what was observed, and vectors.
_CALLABLE = {each.name: each for each in (*CONVERSIONS.values(), *_CALLED, *map(operation_of, OPERATORS.values()))}
IDENTIFY = identify_operation(_CALLABLE)
CALL_VECTORS = call_vectors_operation(
    {name: each for name, each in _CALLABLE.items() if isinstance(each.reply[0], TensorOutput)}
)

OPERATIONS: Mapping[str, Operation] = {
    each.name: each for each in (*_CALLED, IDENTIFY, CALL_VECTORS, EQUIVALENCE, PARSE_TYPE, TRANSLATE_TYPE, LOWER)
}
"""All of them by name."""
