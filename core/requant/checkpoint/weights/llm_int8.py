"""LLM.int8 as bitsandbytes stores it: 8-bit integers, and the largest magnitude of each row. It is read only.

    value = f32(f32(code * SCB) * f32(1 / 127)), then rounded (RNE) to the dtype

The numbers that it holds are code * f32(SCB * f32(1 / 127)).

Source: bitsandbytes 0.50.2, `int8_vectorwise_dequant` (`_ops.py`), `Linear8bitLt._save_to_state_dict` and
`maybe_rearrange_weight` (`nn/modules.py`), which takes rows in order (`weight_format` 0) alone: versions before 0.45
also wrote the orders of GPUs' tensor cores. Columns of outliers are not stored: they are those of the activations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from requant.checkpoint.weights.blocks import Block, ScaledCodes
from requant.checkpoint.weights.floats import SIGNED, Array, bits_of, check_weight, float_kernels, values
from requant.checkpoint.weights.weight_format import (
    Codes,
    ReadOnlyFormat,
    Region,
    StoredRows,
    StoredTensor,
    WeightFormat,
)
from requant.errors import CheckpointError
from requant.kernels.checkpoint.values import scaled_values
from requant.kernels.jit.jit import Kernel

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

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        """Raises CheckpointError for codes in another order."""
        return replace(self._products(stored), scales=_scales(stored))

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        """Raises CheckpointError for codes in another order."""
        products = values(self._products(stored).values("F32"), "F32").reshape(stored.count, -1)
        with np.errstate(all="ignore"):
            return bits_of(products * _RECIPROCAL, dtype)

    def _products(self, stored: StoredRows) -> ScaledCodes:
        """Return the codes with SCB as scales."""
        if self.states_order and (order := int(stored.parts[ORDER].reshape(-1)[0])) != ROWS:
            raise CheckpointError(
                f"weight_format is {order}, an order of codes for tensor cores that bitsandbytes no longer reads; "
                f"expected {ROWS}: save the model again with bitsandbytes 0.44"
            )
        codes, columns = np.ascontiguousarray(stored.parts[WEIGHT]), stored.shape[1]
        return ScaledCodes(codes, SIGNED, columns, Block(1, columns), stored.parts[SCALE].reshape(-1, 1), None, "F32")

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return (scaled_values, *float_kernels(dtypes))

    def codes(self, stored: StoredRows) -> Codes:
        return Codes(stored.parts[WEIGHT].astype(np.int16), -_HIGHEST, _HIGHEST, _scales(stored), uniform=True)


def _scales(stored: StoredRows) -> Array:
    """Return f32(SCB * f32(1 / 127))."""
    with np.errstate(all="ignore"):
        scales: Array = stored.parts[SCALE].reshape(-1, 1) * _RECIPROCAL
    return scales
