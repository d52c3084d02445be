"""Floats of linear modules that lie in the tensors of several experts, transposed or one beside the other.

    X.gate_up_proj      [experts, in, 2 * out]      row r of expert e's gate is [e, :, 2 r], of its up [e, :, 2 r + 1]
    X.gate_up_proj_bias [experts, 2 * out]          likewise, of one column
    X.down_proj         [experts, in, out]          row r is [e, :, r]

Source: transformers 5.23.0, `GptOssExperts` (`models/gpt_oss/modeling_gpt_oss.py`); llm-compressor 0.14,
`GptOssExpertMLP.copy_from_experts_module` (`modeling/moe/gpt_oss.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from requant.checkpoint.weights.blocks import ScaledCodes
from requant.checkpoint.weights.floats import Array, bits_of, float_kernels, values
from requant.checkpoint.weights.weight_format import Codes, ReadOnlyFormat, Region, StoredRows, StoredTensor
from requant.errors import CheckpointError
from requant.kernels.jit.jit import Kernel

FLOATS = "floats"
_NO_CODES = "plain floats have no codes"


@dataclass(frozen=True, slots=True)
class TransposedFloats(ReadOnlyFormat):
    """`floats` [in, step * out] of a dtype: row r of the weight is the column first + step * r.

    `vector`: whether it is a bias, of one column.
    """

    dtype: str
    first: int = 0
    step: int = 1
    vector: bool = False
    is_plain = True

    def tensor_name(self, module: str) -> str:
        return f"{module}.bias" if self.vector else f"{module}.weight"

    def tensor_shape(self, shape: tuple[int, int]) -> tuple[int, ...]:
        return shape[:1] if self.vector else shape

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        return (StoredTensor(FLOATS, self.dtype, (shape[1], shape[0] * self.step)),)

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        return (Region(FLOATS, 0, shape[1], row_begin * self.step, row_end * self.step),)

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        raise CheckpointError(_NO_CODES)

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        bits = self._bits(stored)
        return bits if dtype == self.dtype else bits_of(values(bits, self.dtype), dtype)

    def numbers(self, stored: StoredRows) -> Array:
        return values(self._bits(stored), self.dtype).astype(np.float64)

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return float_kernels(dtypes)

    def codes(self, stored: StoredRows) -> Codes:
        raise CheckpointError(_NO_CODES)

    def _bits(self, stored: StoredRows) -> Array:
        return np.ascontiguousarray(stored.parts[FLOATS][:, self.first :: self.step].T)
