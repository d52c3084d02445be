"""Weights as FP8: float-quantized, and naive-quantized if activations are not quantized. Both are stored alike.

Source: compressed-tensors 0.20.0, `compressors/naive_quantized`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from requant.checkpoint.weights.blocks import Block, codes
from requant.checkpoint.weights.compressed_tensors.scaled_weight import ScaledWeight
from requant.checkpoint.weights.weight_format import Array, StoredTensor
from requant.kernels.checkpoint.codes import E4M3_CODES

E4M3_LARGEST = 448.0
E4M3_VALUES: Array = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
"""The value of each f8E4M3FN."""

_MAGNITUDES = np.tile(np.arange(128, dtype=np.int16), 2)
E4M3_PLACES: Array = np.where(np.arange(256) < 128, _MAGNITUDES, -_MAGNITUDES)
"""Its place in the order of all values; that of the NaN beyond the last."""

E4M3_HIGHEST = 0x7E
"""The place of the largest."""


@dataclass(frozen=True)
class FloatQuantized(ScaledWeight):
    """float-quantized: `weight` F8_E4M3 [out, in] and `weight_scale`."""

    of_integers = False

    def half_range(self) -> float:
        """As `ScaledWeight.half_range`."""
        return E4M3_LARGEST

    def table(self) -> Array:
        """As `ScaledWeight.table`."""
        return E4M3_VALUES

    def places(self) -> tuple[Array, int, int]:
        """As `ScaledWeight.places`."""
        return E4M3_PLACES, -E4M3_HIGHEST, E4M3_HIGHEST

    def coded(self, rows: Array, dtype: str, block: Block, scales: Array, zero_points: Array | None) -> Array:
        """As `ScaledWeight.coded`."""
        return e4m3_codes(rows, dtype, block, scales, rounds=self.rounds)

    def unpacked_codes(self, stored: Mapping[str, Array], columns: int) -> Array:
        """As `ScaledWeight.unpacked_codes`."""
        return np.ascontiguousarray(stored["weight"])

    def code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        """As `ScaledWeight.code_tensor`."""
        return StoredTensor("weight", "F8_E4M3", shape)


def e4m3_codes(rows: Array, dtype: str, block: Block, scales: Array, *, rounds: bool) -> Array:
    """Return f8E4M3FN(clamp(R(w / s), -448, 448)) as bytes."""
    return codes(
        E4M3_CODES,
        rows,
        dtype,
        block,
        scales,
        None,
        rounds=rounds,
        lowest=-E4M3_LARGEST,
        highest=E4M3_LARGEST,
        stride=rows.shape[1],
    )
