"""LLM.int8 as bitsandbytes stores it: 8-bit integers, and the largest magnitude of each row. It is read only.

    value = f32(f32(code * SCB) * f32(1 / 127)), then rounded (RNE) to the dtype

Source: bitsandbytes 0.50.2, `int8_vectorwise_dequant` (`_ops.py`), `Linear8bitLt._save_to_state_dict` and
`maybe_rearrange_weight` (`nn/modules.py`), which takes rows in order (`weight_format` 0) alone: versions before 0.45
also wrote the orders of GPUs' tensor cores. Columns of outliers are not stored: they are those of the activations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from requant.checkpoint.weights.blocks import Block, scaled
from requant.checkpoint.weights.floats import SIGNED, bits_of, check_weight, values
from requant.checkpoint.weights.weight_format import (
    Array,
    Codes,
    ReadOnlyFormat,
    Region,
    StoredRows,
    StoredTensor,
    WeightFormat,
)
from requant.errors import CheckpointError

WEIGHT, SCALE, ORDER = "weight", "SCB", "weight_format"
ROWS = 0
"""The order of codes in which rows follow each other."""
_RECIPROCAL = np.float32(7.874015718698502e-3)
_HIGHEST = 127


@dataclass(frozen=True)
class LlmInt8(ReadOnlyFormat):
    """`weight` I8 [out, in], `SCB` F32 [out]. `states_order`: whether there is a `weight_format`, U8 [1]."""

    states_order: bool = False

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        check_weight(dtype, shape)
        order = (StoredTensor(ORDER, "U8", (1,)),) if self.states_order else ()
        return (StoredTensor(WEIGHT, "I8", shape), StoredTensor(SCALE, "F32", (shape[0],)), *order)

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        _, shape = super().resolve_from_stored(tensors, None)
        return replace(self, states_order=ORDER in tensors), shape

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        regions = (Region(WEIGHT, row_begin, row_end, 0, shape[1]), Region(SCALE, 0, 1, row_begin, row_end))
        return (*regions, Region(ORDER, 0, 1, 0, 1)) if self.states_order and row_begin == 0 else regions

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        """Raises CheckpointError for codes in another order."""
        if self.states_order and (order := int(stored.parts[ORDER].reshape(-1)[0])) != ROWS:
            raise CheckpointError(
                f"weight_format is {order}, an order of codes for tensor cores that bitsandbytes no longer reads; "
                f"expected {ROWS}: save the model again with bitsandbytes 0.44"
            )
        codes, scales = np.ascontiguousarray(stored.parts[WEIGHT]), stored.parts[SCALE].reshape(-1, 1)
        block = Block(1, stored.shape[1])
        products = scaled(codes, SIGNED, stored.shape[1], block, scales, None, precision="F32", dtype="F32")
        with np.errstate(all="ignore"):
            return bits_of(values(products, "F32") * _RECIPROCAL, dtype)

    def codes(self, stored: StoredRows) -> Codes:
        with np.errstate(all="ignore"):
            scales = stored.parts[SCALE].reshape(-1, 1) * _RECIPROCAL
        return Codes(stored.parts[WEIGHT].astype(np.int16), -_HIGHEST, _HIGHEST, scales, uniform=True)
