"""MXFP4 as DeepSeek-V4 stores it: E2M1 codes two to a byte, and a power of two for each 32 of a row.

    value = code * 2^(E - 127), rounded once (RNE) to the dtype          E: the byte of the scale

The first code of a byte is in its lower half, as compressed-tensors has it too, whose loader rounds to BF16 on the way
(`requant.checkpoint.weights.block_scaled`).

| | codes | scales | E = 255 |
| --- | --- | --- | --- |
| DeepSeek-V4 | `weight` I8 [out, in / 2] | `scale` F8_E8M0 or U8 [out, in / 32] | NaN; as U8 infinity, times 0 NaN |

Source: transformers 5.23.0, `Fp8Dequantize._dequantize_one` (`integrations/finegrained_fp8.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from requant.checkpoint.weights.blocks import Block, scaled
from requant.checkpoint.weights.floats import E2M1, E8M0_VALUES
from requant.checkpoint.weights.packing import unpacked_half_bytes
from requant.checkpoint.weights.weight_format import (
    Array,
    Codes,
    ReadOnlyFormat,
    Region,
    StoredRows,
    StoredTensor,
    WeightFormat,
    check_groups,
    matrix_shape,
)
from requant.convert.blocks import mx
from requant.errors import CheckpointError

_BLOCK = Block(1, mx.BLOCK)
# Twice the codes by half the scales: all of these are finite and not 0, and each product is exact until it is rounded.
_TWICE_CODES: Array = E2M1.values * np.float32(2)
_HALF_SCALES: Array = E8M0_VALUES / np.float32(2)
_HALF_SCALES_OF_U8: Array = np.append(_HALF_SCALES[:-1], np.float32(np.inf))


class Layout(NamedTuple):
    """The suffixes of codes and scales, and the dtype of the codes."""

    codes: str
    codes_dtype: str
    scales: str


DEEPSEEK = Layout("weight", "I8", "scale")
SCALE_DTYPES = ("F8_E8M0", "U8")


@dataclass(frozen=True, slots=True)
class Mxfp4(ReadOnlyFormat):
    """Codes [out, in / 2] and scales [out, in / 32] of a weight. `scale_dtype`: one of `SCALE_DTYPES`."""

    layout: Layout
    scale_dtype: str

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        check_groups(shape, _BLOCK.width)
        return (
            StoredTensor(self.layout.codes, self.layout.codes_dtype, (shape[0], shape[1] // 2)),
            StoredTensor(self.layout.scales, self.scale_dtype, (shape[0], shape[1] // _BLOCK.width)),
        )

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        """Scales are of the dtype that they have."""
        codes, scale = tensors.get(self.layout.codes), tensors.get(self.layout.scales)
        rows, half = matrix_shape(() if codes is None else codes.shape)
        if scale is not None and scale.dtype not in SCALE_DTYPES:
            raise CheckpointError(
                f"{scale.suffix} of E2M1 codes is {scale.dtype}; expected one of {', '.join(SCALE_DTYPES)}"
            )
        return (self if scale is None else replace(self, scale_dtype=scale.dtype)), (rows, 2 * half)

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        return (
            Region(self.layout.codes, row_begin, row_end, 0, shape[1] // 2),
            Region(self.layout.scales, row_begin, row_end, 0, shape[1] // _BLOCK.width),
        )

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        codes, scales = self._unpacked(stored), self._half_scales(stored)
        return scaled(codes, _TWICE_CODES, stored.shape[1], _BLOCK, scales, None, precision="F32", dtype=dtype)

    def codes(self, stored: StoredRows) -> Codes:
        with np.errstate(over="ignore"):
            scales = self._half_scales(stored) * np.float32(2)
        return Codes(E2M1.places[self._unpacked(stored)], -E2M1.highest, E2M1.highest, scales, uniform=False)

    def _unpacked(self, stored: StoredRows) -> Array:
        return unpacked_half_bytes(stored.parts[self.layout.codes].view(np.uint8))

    def _half_scales(self, stored: StoredRows) -> Array:
        table = _HALF_SCALES if self.scale_dtype == "F8_E8M0" else _HALF_SCALES_OF_U8
        half: Array = table[stored.parts[self.layout.scales]]
        return half
